import yaml
from pathlib import Path
from persona_pipeline.scoring.text.agreement import packaged_lexicon,is_agreement,_with,default_lexicon
for l in "en de fr es it pt nl ja zh ar".split():
    alone=packaged_lexicon(l); both=_with(default_lexicon(),*([l] if l!="en" else []))
    d=yaml.safe_load(open(f"benchmarks/everyday/{l}.yaml"))
    sm=[x for x in Path(f"persona_pipeline/scoring/voice_alarm/data/{l}.txt").read_text().splitlines() if not x.startswith("# ")]
    out=[]
    for name,ls in (("agree",d["agree"]),("normal",d["normal"]),("voice",d["voice"]),("assistant",d["assistant"]),("background",sm)):
        f=lambda lex:[is_agreement(x,lex) for x in ls]
        a,b=f(alone),f(both)
        w=sum(sum(b[i:i+10])>6 for i in range(len(b)-9))
        out.append(f"{name} {sum(a)}/{sum(b)} of {len(ls)} win {w}")
    print(l,*out,sep="; ")
