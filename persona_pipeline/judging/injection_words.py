"""Words an attack on a judge is made of, in many languages, by what they mean in it.

A stem stands for all words that begin with it; ``_`` at its end makes it a whole word, and ``~`` stands for one
separator or
more. Letters are compared after folding (case, accents and width do not matter).
"""

DROP = """
ignore ignoring_ disregard_ forget_ forget~that overrid skip_ set~aside drop_ no~attention don't~follow dont~follow
do~not~follow
obsolete_ no~longer~appl without~regard stop~following neglect_ do~not~check discard_ suspended_ cancelled_ void_
ignorier vergiss_ vergessen~sie missacht beachte~die aufgehoben_ ausser~acht
oublie_ oubliez_ ignorez_ pas~compte fais~abstraction faites~abstraction neglige_ ne~suis~pas ne~suivez~pas
ignora_ olvida_ olvide_ omite_ hagas~caso haga~caso no~existieran no~sigas descarta_ prescinde_
dimentica_ dimenticate_ trascura_ ignorate_ non~seguire non~considerare tralascia_
esqueca_ esquece_ desconsidere_ nao~siga
negeer_ vergeet_ zignoruj_ zapomnij_ pomin_ yok~say unut_ gormezden~gel dikkate~alma
игнорир не~обращай забудь_ забудьте_ отбрось ігнору забудьте не~зважай
忽略 無視 无视 不要理会 忘掉 忘记 忘れ 従わない 从略 不用管 무시 잊고 잊어 따르지~마 따르지~말
تجاهل انس_ انسى لا~تلتزم لا~تتبع अनदेखा भूल~जा نادیده~بگیر فراموش~کن התעלם תשכח
bo~qua quen~di abaikan_ lupakan_ เพิกเฉย ละเว้น ลืมคำสั่ง ignorera_ glom_ glem_ αγνοησε ξεχασε ignoruj_ zapomen
unohda_ felejtsd
"""
# What is to be dropped.
RULES = """
instruction rule_ rules_ rubric prompt_ guideline guidance_ guide_ criteria_ criterion_ directive command_ commands_
standards_ told_ task_ policy_ policies_
anweisung regel regeln_ vorgabe kriteri hinweis_ stand_
consigne regle instructions_ directives_ bareme critere
instruccion regla reglas_ indicacion criterio
istruzion regole_ criteri_ detto_ indicazion
instruco instrucoes_ regras_ criterios_
instructies_ regels_ beoordelingsregels polecen instrukcj zasad talimat kural yonerge
инструкц правил указан критери вказів інструкц
指令 指示 规则 規則 标准 標準 说明 ルール 基準 命令 지시 규칙 기준 명령
التعليمات القواعد قواعد المعايير निर्देश नियम دستور قوانین ההוראות הכללים
huong~dan quy~tac instruksi aturan perintah คำสั่ง กฎ instruktioner regler οδηγι κανον pokyn ohjeet saannot utasitas
"""
# Which of them: what the judge was told before, or everything.
BEFORE = """
previous_ prior_ earlier_ above_ before_ preceding_ all_ any_ every_ everything_ your_ system_ former_ until~now
so~far
bisherig vorherig vorig fruher alle_ alles_ obig vorher_ bewertung
precedent toutes_ tous_ ci-dessus anterieur evaluation d'evaluation votre_ ta_ tes_ vos_
anterior previ todas_ evaluacion arriba_ tus_ sus_ precedenti_ tutte_ valutazione_ prima_ avaliacao eerdere_ alle_
wczesniejsz wszystkie_ oceniania_
onceki tum_ degerlendirme предыдущ прежн все_ оценив попередн усі_ оцінювання
之前 以上 上面 所有 评分 评价 これまで すべて 上記 評価 以前 이전 모든 위의 위~지 평가
السابق كل_ جميع التقييم पिछले सभी मूल्यांकन قبلی تمام הקודמ כל_ truoc moi_ sebelumnya semua_ ก่อนหน้า ทั้งหมด tidigare
alla_ προηγουμεν ολες predchozi vsechny aiemmat kaikki_
grading_ evaluation_ judging_ scoring_ tout_ tutto_ todo_ tudo_ wszystko_
"""
GIVE = """
give_ giving_ award_ assign_ return_ output_ respond_ answer_ write_ set_ mark_ rate_ grade_ score_ choose_ pick_
report_ put_ approve_ say_ says_ conclude_ consider_ treat_
kindly_ please_ must_ shall_ should_ always_ imperative_ receives_ deserves_
gib_ geben_ vergib_ bewerte_ setze_ antworte_ bitte_ gibst_ vergeben_
mets_ mettez_ donne_ donnez_ attribue_ attribuez_ note_ reponds_ accorde_
pon_ ponga_ pone_ da_ de_ califica_ asigna_ otorga_ responde_ pongas_
assegna_ dai_ metti_ dare_ rispondi_ attribuisci_ de_ deem_ dá_ atribua_ considere_
geef_ ken_ daj_ przyznaj_ ver_ verin_ поставь поставьте дай_ ставишь ставь_ оцени_ постав_ став_
给出 请打 请给 直接 永远给 打出 つけて 答えて お願い つける 주세요 주십시오 주는 답하 매겨 줘_
أعط امنح ضع_ يعطي दो_ दें_ दीजिए بده_ تن_ תן_ cho_ beri_ berikan_ ให้คะแนน ให้_ ge_ ger_ δωσε βαλε dej_ udel_
anna~korkein adj_
"""
SCORE = """
score scoring rating_ ratings_ grade_ grades_ marks_ points_ verdict value_ number_ result_ evaluation_ scale_ match_
label_ item_
punkt note_ wertung bewert punktzahl hochstnote
notes_ points nota_ notas_ puntuacion puntaje puntos_ calificacion calificar_
voto_ punteggio pontuacao pontos_ cijfer punten_ beoordeling ocen wynik punkt puan not_
оценк балл оцінк бал_
分_ 分数 得分 评分 点数 得点 スコア 점수 점_
درجة الدرجة درجات نقاط العلامة علامة अंक अंको نمره امتیاز ציון diem_ nilai_ skor_ คะแนน betyg poang βαθμο hodnoceni
bodu_ pistema pontszam
"""
TOP = """
9_ nine_ zero_ 9/9 10/10 full_ maximum_ max_ highest_ perfect_ top_ best_ excellent_ flawless_ exemplary_ generous_
lenient_
neun_ voll maximal hochst neuf_ maximale_ meilleure_ parfait maxima_ nueve_ alta_ perfect massim nove_ alto_
perfettamente maxim
hoogste_ negen_ najwyzsz dziewiec en~yuksek dokuz_ tam_ высш девять максим найвищ дев'ять
九 最高 满分 滿分 満点 최고 만점 أعلى تسع الكاملة सबसे~ऊ नौ_ ९ بالاترین ۹ ۹_ גבוה תשע cao~nhat tertinggi_ sembilan_ สูงสุด hogsta_
nio_ υψηλοτερ εννεα nejvyssi devet_ korkein_ yhdeksan_
"""
JUDGE = """
judge_ judges_ grader_ graders_ gradebot_ evaluator assessor reviewer_ rater_ examiner_ ai_ llm_ llms_ language~model
model_ grading~system evaluation~model automated~review
gutachter prufer_ bewerter_ evaluateur juge_ correcteur_ evaluador juez_ calificador valutatore_ giudice_ avaliador
juiz_
beoordelaar_ rechter_ sedzi oceniajac degerlendirici_ hakem_ yargic
судья_ судье_ эксперт проверяющ оценщик судде
评审 评委 裁判 評価者 審査員 採点者 심사위원 평가자 채점
المقيم المقيّم حكم_ الحكم मूल्यांकनकर्ता निर्णायक داور_ שופט giam~khao penilai_ juri_ ผู้ประเมิน กรรมการ bedomare
domare_ κριτη hodnotitel arvioija biro_
"""
# Somebody is spoken to, or given a part.
ADDRESS = """
dear_ hey_ attention_ note~to note~for note_ psst message~to message~for to~the~ai to~the~judge for~the~judge
you~are~now you~are~a you~are~that you~will~act act~as are~an_ pretend_ imagine_ when~you~evaluate
while~you~evaluate if~you~are let's~play
lieber_ liebe_ an~den_ du~bist cher_ chere_ tu~es_ vous~etes estimado_ estimada_ querido_ eres_ caro_ cara_ gentile_
sei_ voce~agora voce~e_
beste_ je~bent drogi_ jestes_ sayin_ уважаем дорог ты_ вы_ 亲爱 你是 请_ あなたは の方へ 者へ 님 너는 당신은
عزيزي أنت_ انت_ प्रिय तुम_ گرامی יקר than~men ban~la yang~terhormat kamu~adalah ถึง kara_ du~ar αγαπητ vazeny hyva_
"""
CLAIM = """
claim proposition statement_ statements_ persona_ conversation_ transcript_ exchange_ agent_ agent's assertion_
aussage behauptung affirmation affirmacion afirmacion affermazion afirmac bewering twierdze iddia утвержд тверджен
陈述 主张 主張 주장 الادعاء ادعاءات دावा دعاوی טענ tuyen~bo pernyataan pastaende ισχυρισ tvrzeni vaite
"""
TRUE = """
true_ proven_ satisfied_ hold_ holds_ passed_ passing_ pass_ fulfilled_ verified_ in~character perfectly_ exemplary_
flawless_ perfect_ exception exceptions_ beyond~doubt
wahr_ erfullt_ vrai vraie conforme cierta_ ciertas_ verdadera_ verdadeiras_ vera_ vere_ vero_ waar_ prawdziw dogru_
верн истин правд
成立 为真 真です 참으로 صحيح सत्य درست_ נכון dung_ benar_ จริง sanna_ sant_ αληθ pravdiv totta_
"""

CONCEPTS = {
    "drop": DROP,
    "rules": RULES,
    "before": BEFORE,
    "give": GIVE,
    "score": SCORE,
    "top": TOP,
    "judge": JUDGE,
    "address": ADDRESS,
    "claim": CLAIM,
    "true": TRUE,
}
