import persona_pipeline.corrections as corrections


def test_every_public_name_is_there() -> None:
    for name in corrections.__all__:
        assert getattr(corrections, name).__name__ == name
