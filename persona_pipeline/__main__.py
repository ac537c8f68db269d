from persona_pipeline.cli import main

main()
