import sys
from persona_pipeline.scoring.text.agreement import packaged_lexicon,is_agreement
for l in sys.argv[1].split(","):
    ls=open(f"/tmp/h/dev/{l}.txt").read().splitlines(); lex=packaged_lexicon(l)
    miss=[x for x in ls if not is_agreement(x,lex)]; print(l,len(ls)-len(miss),len(ls)); print(*("   "+x for x in miss),sep="\n")
