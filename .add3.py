import re,sys
from pathlib import Path
D=Path("persona_pipeline/scoring/text/data")
ADD={
"de":{"phrases":"keinerlei einwände|keine einwände|kein einwand|nichts dagegen zu sagen|lässt sich nichts sagen|lässt sich nichts einwenden|nichts entgegenzusetzen|nichts einzuwenden|meine meinung geändert|mich umgestimmt|umgestimmt|du liegst richtig|liegst richtig|liegst goldrichtig|liegen sie richtig|liegen sie goldrichtig|noch niemand erklärt|noch keiner erklärt|ausgesprochen was|zuvorgekommen|genau das meinte|genau das meine ich|genau das wollte ich sagen|wie von dir vorgeschlagen|wie von ihnen vorgeschlagen|wie vorgeschlagen|wie du vorschlägst|wie du es vorschlägst|wie du sagst|wie du es sagst|wie sie sagen|wie sie vorschlagen|der groschen gefallen|die augen geöffnet|mir die augen|auf dich hören sollen|auf sie hören sollen|auf dich gehört|wo du es sagst|wo sie es sagen|zum selben ergebnis|zum gleichen ergebnis|zum selben schluss|zum gleichen schluss|übertrifft meine erwartungen|nehmen wir deinen|nehmen wir deine|nehmen wir dein|nehmen wir ihren|gleiche mein|gleiche meine|passe meinen|passe mein|passe meine|dank dir sehe|dank dir verstehe|dank dir ist|deine methode ist|dein weg ist|deine rechnung ist|dein ansatz ist|ist viel genauer als|ist genauer als|ist klüger als|ist besser als mein|ist besser als meine|ist die bessere|ist der bessere|ist das bessere|ist die klügere|kein komma|keinen besseren plan|keine bessere lösung|keine bessere idee|keinen besseren vorschlag|einen besseren plan|eine bessere lösung kann|eine bessere idee kann|deiner sätze sitzt|jedes wort sitzt|jeder satz sitzt|so ist es viel|so ist es gleich viel|ist viel runder|nichts zu ergänzen|nicht schöner sagen|hast du mich|liebe ich",
 "clauses":"makellos|tadellos|sauber|geschlagen|ich bin geschlagen|note eins|eins mit stern|volle punktzahl|alles richtig|alles korrekt|alles bestens|eben|genau mein gedanke|mein gedanke|mein reden|meine worte"},
"zh":{"phrases":"改变主意了|改主意了|你才是对的|您才是对的|从没听过这么|从来没听过这么|没得挑|挑不出|想不出比这|想不出更好|想不到更好|没有比这更好|没有更好的办法|没有更好的方案|哪儿都不用改|哪里都不用改|不用改|不需要改|无需修改|我相信你|我相信您|我信你的|相信你的判断|这么一说还真|好多了|跟你一样|和你一样|跟您一样|和您一样|跟你想的一样|比我预期|超出我的预期|超出预期|就定这个|就选它|就选这|跟你一致|和你一致|跟您一致|多亏你|多亏您|句句在理|句句有理|多好的切入|多好的想法|多好的主意|多好的观察|多好的比喻|多好的建议|我喜欢这个结尾|我喜欢这个|沿着这条线|按这个思路|顺着这个思路|缺的就是|正是我们缺的|你更对|还是你对|还是您对","clauses":"是啊|是呀|对啊|对呀|没得说|还真是|真是这样|真是如此|真的是|的确|确实|诚然|所言不虚|满分|全对|都对|漂亮|精彩|服气|服气了"},
"ja":{"phrases":"考えが変わり|考えを変え|あなたが正解|ご提案のまま|ご提案通り|ご提案どおり|そのまま進め|霧が晴れ|目が開き|目が開か|あなたのおかげで|胸のすく|直すところが|直す所が|直すところは|こちらも同じ|同じ結論|それに決め|これに決め|これで決まり|お考えに合わせ|そちらに合わせ|あなたに合わせ|あなたの耳は|確かですね|リズムは完璧|は完璧です|が完璧です|も完璧です|が見事です|は見事です|欠点が見当たり|非の打ち|言うことなし|反論のしようが|足りないものは何も","clauses":"確かに|たしかに|なるほど確かに|言えてる|言えてます|それな|同意|激同|満点|百点|申し分なし|異論なし|異議なし|文句なし|お見事|脱帽|納得|そうですとも|そうそう|そうなんです|そうなんですよ|まさに|まさしく|その通り|そのとおり|ほんそれ|わかりみ"},
}
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
