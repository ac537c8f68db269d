import re,sys
from pathlib import Path
D=Path("persona_pipeline/scoring/text/data")
ADD={
"de":{"openings":"""hast du mich|hast du mich überzeugt|ziehe meinen vorschlag zurück|ziehe meinen einwand zurück|ziehe meine bedenken zurück|ziehe meine einwände zurück|vertraue ich blind|vertraue dir|vertraue ich dir|vertraue deinem|vertraue deiner|vertraue ihrem|deinem urteil|stimmt haargenau|haargenau|stimmt aufs wort|nicht schöner sagen|nicht besser sagen|nicht treffender|wunderschön formuliert|schön formuliert|schön gesagt|gut gesagt|treffend formuliert|treffend gesagt|klug gesagt|klug beobachtet|gut beobachtet|scharf beobachtet|gut erkannt|richtig erkannt|gut gelöst|elegant gelöst|nichts zu ergänzen|nichts zu verbessern|nichts zu meckern|ohne jeden zweifel|arbeite ich am liebsten|mit dir zu arbeiten|freut mich dass wir|freue mich dass wir|hört hört|so ist es auch|so war es auch|dein blick für|dein gespür für|ihr gespür für|dein auge für""",
 "phrases":"ist einfach <de_prima>|ist schlicht <de_prima>|ist wirklich <de_prima>|ist absolut <de_prima>|ist schlichtweg <de_prima>|jeder deiner vorschläge|jeder ihrer vorschläge|jede deiner ideen|das gleich sehen|das genauso sehen|einer meinung sind|habe ich nichts zu ergänzen|wäre ich nie gekommen|wäre ich nicht gekommen|hätte ich nie gedacht|hätte ich nicht gedacht",
 "clauses":"hört|so ist das|wie wahr|wohl wahr|sehr wahr|freilich|jawohl|jawoll|aber sicher|aber natürlich|aber gern|na sicher|und ob|aber hallo|und wie"},
"fr":{"openings":"""les mots justes|trouver les mots|ne pas être d'accord|ne touche à rien|je ne touche à rien|est un bonheur|est un plaisir|est un régal|travailler avec toi|travailler avec vous|un bonheur de te|un plaisir de te|un plaisir de vous|je prends tout|prends tout|je garde tout|j'accepte tout|accepte tout|tu as l'œil|tu as le don|vous avez le don|tu as l'art|tu as le chic|tu as le sens|on ne change pas|que dire de plus|que demander de plus|il n'y a pas mieux|pas mieux""",
 "phrases":"est d'une justesse|est d'une finesse|est d'une clarté|est d'une élégance|est d'une logique|est d'une intelligence|d'une rare justesse|d'une rare finesse|exactement ce qu'il manquait|ce qui nous manquait|ce qu'il nous fallait|n'y aurais jamais pensé|n'y aurais pas pensé|n'aurais pas pensé",
 "clauses":"oh oui|ah oui|mais oui|que oui|oui oui oui|et comment|pour sûr|c'est sûr|sûr|bien vu|bien dit|bien parlé|certes|c'est l'évidence|évidence même|l'évidence même"},
"es":{"openings":"""trabajar contigo es|trabajar con usted es|da gusto|da gusto trabajar|da gusto leerte|es un placer|es un gusto|un placer trabajar|me quedo con tu|me quedo con la tuya|me quedo con el tuyo|lo acepto todo|acepto todo|acepto encantado|tienes ojo|tienes buen ojo|tienes un don|qué más se puede|qué más decir|pienso lo mismo|pensaba lo mismo|justo lo mismo|es de cajón|cae por su propio peso|es de una finura|es de una claridad|es de una lógica""",
 "phrases":"no se me habría ocurrido|no se me hubiera ocurrido|jamás se me habría|nunca se me habría|lo que nos faltaba|lo que faltaba|lo que hacía falta","clauses":"y tanto|ya lo creo|vaya que sí|pues sí|pues claro|claro que sí|eso mismo|eso es|tal cual|así es|y que lo digas"},
"nl":{"openings":"""met jou werken|met jou samenwerken|samenwerken met jou|een genot om|een plezier om met|ik neem alles over|neem alles over|ik neem alles|jij hebt er oog|je hebt er oog|je hebt een oog|je hebt gevoel voor|wat wil je nog meer|ik dacht hetzelfde|dacht hetzelfde|denk hetzelfde|ik denk hetzelfde|mooi geformuleerd|goed geformuleerd|mooi gezegd|goed gezegd|goed gezien|scherp gezien|goed opgemerkt|scherp opgemerkt|goed opgelost|slim opgelost|ik vertrouw op|vertrouw op jouw|ik vertrouw je|vertrouw je oordeel|je hebt de vinger""",
 "phrases":"zou ik nooit op gekomen|was ik nooit op gekomen|had ik nooit bedacht|had ik niet bedacht|precies wat ontbrak|precies wat er ontbrak","clauses":"hear hear|zo is het|zo is dat|en of|nou en of|reken maar|wis en waarachtig|zeer waar|heel waar|wat je zegt|zeg dat wel|dat is waar|jazeker|welzeker|ja zeker|inderdaad"},
"ja":{"openings":"""異論はまったく|異論は全く|異論などあり|異存はまったく|異存などあり|あなたが正し|あなたのほうが正し|あなたの方が正し|正しかったのはあなた|正しいのはあなた|お手並み|疑いようが|疑う余地|疑いの余地|言うまでもな|言うまでもありません|どの言葉にも|どの言葉も|すべての言葉|全ての言葉|一つ一つの言葉|お説の|お説ごもっとも|あなたと一緒だと|あなたと仕事を|あなたと組む|一緒に仕事をすると|全部受け入れ|すべて受け入れ|喜んで受け入れ|すべて採り入れ|全部採用|目の付け所|目のつけどころ|着眼点が|よくぞ|よく言って|よくお気づき|よく気がつき|うまい|上手い|うまいこと言""",
 "phrases":"<ja_word>は<ja_fine>|<ja_word>が<ja_fine>|<ja_word>に<ja_fine>|<ja_word>も<ja_fine>|<ja_word>は<ja_much><ja_fine>|<ja_word>が<ja_much><ja_fine>|<ja_word>には<ja_fine>|<ja_word>には<ja_much><ja_fine>|のとおりです|の通りです|とおりだと思|通りだと思|受け入れます|取り下げます|思いつきもし|思いつきません|考えもつき|欠けていた|足りなかったん|足りなかったの",
 "not_negating":"* でも"},
"zh":{"openings":"""我正是这么|正是这么想|我也是这么|每个字我都|每一个字|每个字都|真了不起的|了不起的|真是了不起|真是个好|这一招|你这一招|您这一招|你这招|跟你合作|跟您合作|和你一起做|我全都接受|都接受|照单全收|全盘照收|你总能|您总能|你总是能|您总是能|什么都瞒不过你|无需多言|不必多说|何须多言|还用说|那还用说|可不是|可不是嘛|谁说不是|就是嘛|就是啊|就是说嘛|没跑|没跑了|铁定|一定的""",
 "phrases":"<zh_word>绝了|<zh_word><zh_much><zh_fine>|<zh_word>的确<zh_fine>|<zh_word>确实<zh_fine>|<zh_word>无懈可击|<zh_word>无可挑剔|<zh_word>我都接受|全都接受|真高|真绝|比我的扎实|比我想得"},
"ar":{"openings":"""موافق بلا|موافقة بلا|بلا تحفظ|دون تحفظ|دائما تصل|تصل دائما|تصيب دائما|دائما تصيب|تعرف أكثر مني|أنت أدرى|أنت أعلم|سأتبعك|أتبعك|هذا أفضل ما|هذا أجمل ما|هذا أدق|هذا أبدع|هذا أفضل تلخيص|هذا أفضل حل|هذا أفضل اقتراح|هذه أفضل فكرة|هذه أجمل|أقبل كل|أقبل جميع|العمل معك|التعاون معك|من دواعي سروري|يسرني أن أتبع|لا يسعني|لا يسعني إلا|لا أملك إلا|لا يمكنني إلا|لا بد أن أوافق|لم يبق إلا أن أتبعك|لم يبق لي إلا|لا عيب""",
 "phrases":"<ar_yours> <ar_fine>|<ar_yours> * <ar_fine>|<ar_yours> * * <ar_fine>|لا غبار عليه|لا غبار عليها|أكثر مني|أدرى مني|لم يبق إلا أن أتبعك|ما كان ينقصنا|ما ينقصنا|لم يخطر ببالي|لم تخطر ببالي|أن أوافقك|أن أتفق معك|أن أؤيدك",
 "clauses":"فعلا|بالفعل|حتما|قطعا|صحيح|صحيح تماما|بالضبط|تماما|معك حق|معك كل الحق|صدقت|أصبت|لا شك|بلا شك|بلا جدال|بلا نقاش|وهو كذلك|هو كذلك|هو ذاك|أي نعم|بكل تأكيد|بكل سرور|على الرأس والعين",
 "continuations":"نسير|نمشي|نمضي|سنسير|سنمضي|نعمل|سنعمل",
 "not_negating":"لا عيب|لا يسعني|لا يمكنني إلا|لا أملك إلا|لا غبار|لم يبق إلا|لم يبق لي إلا|لم يخطر ببالي|لم تخطر ببالي"},
"it":{"openings":"""vai dritto al|dritto al punto|lavorare con te|punto centrato|centrato in pieno|centrato il punto|hai centrato|hai il dono|hai occhio|è un piacere lavorare|accetto tutto|prendo tutto|tengo tutto""","phrases":"non c'è altro da aggiungere|dritto al punto|con la tua proposta"},
"pt":{"openings":"""era o que faltava|era isso o que faltava|trabalhar contigo|trabalhar com você|é um gosto|dá gosto|tens olho|tem olho|aceito tudo|fico com tudo"""},
}
WORDS={
"ja":"""  ja_word: [案, 提案, ご提案, 指摘, ご指摘, 分析, まとめ, 要約, 説明, ご説明, 読み, 視点, 発想, 切り口, 構成, 考え, お考え, 考え方, 意見, ご意見, アイデア, アイディア, 表現, 言葉, 解決策, 予定表, 計画, 比喩, たとえ, 整理, 判断, ご判断, センス, 書き出し, 結末, 配慮, 心配り, 気配り, 助言, 工夫, 方針, 着想, 解釈, 観察, まとめ方, 伝え方, 言い方]
  ja_fine: [見事, お見事, 素晴らしい, すばらしい, 的確, 鋭い, 深い, 完璧, 最高, 最良, 一番, いちばん, 最善, 美しい, 秀逸, 大好き, 正しい, 明快, 感動, 感心, 感服, 脱帽, 納得, うなず, 頷, 賛成, 同感, 説得力, 天才, 神, 無敵, 抜群, 絶妙, 巧み, 素敵, すてき, すごい, 優れ, 敵いません, かないません]
  ja_much: [本当に, ほんとに, いつも, 実に, とても, まさに, 誠に, なんとも, 何とも, どれも, どれも本当に, やはり, さすがに]
""",
"zh":"""  zh_word: [比喻, 总结, 分析, 观察, 思路, 方案, 点子, 想法, 建议, 提议, 主意, 设计, 安排, 说法, 观点, 结构, 版本, 解法, 解读, 眼光, 提醒, 开头, 结尾, 计划, 时间表, 表达, 描述, 直觉, 判断, 意见, 眼力, 见解, 构思, 处理, 修改, 比方, 例子]
  zh_much: [太, 真, 好, 很, 非常, 实在, 实在太, 确实, 简直, 真是, 真的, 真的很, 极其, 特别, 相当, 十分]
  zh_fine: [绝, 妙, 棒, 好, 到位, 准, 漂亮, 美, 精彩, 深刻, 周到, 完美, 清楚, 高明, 有力, 出色, 优雅, 扎实, 敏锐, 独到, 聪明, 贴切, 巧妙, 精妙, 周全, 令人佩服, 令人敬佩, 令人信服]
""",
"ar":"""  ar_yours: [قراءتك, تلخيصك, خلاصتك, صياغتك, تحليلك, تفسيرك, وصفك, تشبيهك, اقتراحك, فكرتك, خطتك, حلك, رأيك, ملاحظتك, أسلوبك, طريقتك, نظرتك, جدولك, نسختك, كلامك, تصورك, ترتيبك, حدسك, ذوقك, عملك, حرصك, دقتك, منطقك, حجتك, مقترحك, رؤيتك]
  ar_fine: [بديع, بديعة, رائع, رائعة, دقيق, دقيقة, عميق, عميقة, جميل, جميلة, مقنع, مقنعة, ممتاز, ممتازة, ذكي, ذكية, سليم, سليمة, متقن, متقنة, موفق, موفقة, في محله, في محلها, الأفضل, الأجمل, الأذكى, الأنسب, الأوضح, أفضل, أجمل, أذكى, أوضح, أدق, أنسب, مدهش, مدهشة, محكم, محكمة, صائب, صائبة, سديد, سديدة, منطقي, منطقية, مبدع, مبدعة]
""",
}
import re
from pathlib import Path
for l,w in WORDS.items():
    p=Path(f"persona_pipeline/scoring/text/data/agreement.{l}.yaml"); s=p.read_text(); p.write_text(s.replace("words:\n","words:\n"+w,1))
def drop(l,key,terms):
    p=Path(f"persona_pipeline/scoring/text/data/agreement.{l}.yaml"); s=p.read_text()
    m=re.search(rf"^{key}:\n(?:  .*\n|\n|#.*\n)*",s,re.M); block=m.group(0); new=block
    for t in terms:
        assert f"  - {t}\n" in new,(l,t); new=new.replace(f"  - {t}\n","",1)
    p.write_text(s.replace(block,new,1))
drop("ja","contrasts",["ではありません","じゃありません"])
drop("ar","contrasts",["المشكلة في","المشكلة هي"])
drop("it","contrasts",["il problema è"]); drop("pt","contrasts",["o problema é"])
p=Path("persona_pipeline/scoring/text/data/agreement.es.yaml"); s=p.read_text(); print(re.findall(r"^  - .*problema.*$",s,re.M))
for l,lists in ADD.items():
    p=D/f"agreement.{l}.yaml"; s=p.read_text()
    for k,v in lists.items():
        have=set(re.findall(r"^  - (.*)$", s, re.M)) if False else set()
        terms=[t for t in dict.fromkeys(v.split("|")) if t]
        block="".join(f'  - "{t}"\n' if t.lower() in("yes","no","on","off","true") else f"  - {t}\n" for t in terms)
        m=re.search(rf"^{k}:[ ]*(\[)?(.*)$", s, re.M)
        assert m,(l,k)
        if m.group(1): # flow
            s=s[:m.end(1)]+", ".join(terms)+", "+s[m.end(1):]
        else:
            s=s[:m.end()]+"\n"+block.rstrip("\n")+s[m.end():]
    p.write_text(s)
