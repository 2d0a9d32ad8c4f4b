# ruff: noqa: E501, RUF001 - other scripts are the point, and lines of data are as long as they are
"""Generated texts: loops of every period in several languages, and the repetitive texts that real work is.

All of it is made here from a seed; nothing is quoted.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator

_SPACED = {
    "english": "the file was read again and then a test failed because its value is wrong so we must change this function before anyone runs another build on that old branch with no cache left over here today",
    "german": "die Datei wurde gelesen und dann schlug der Test fehl weil ihr Wert falsch ist also müssen wir diese Funktion ändern bevor jemand einen neuen Bau auf dem alten Zweig ohne Zwischenspeicher startet",
    "russian": "файл был прочитан снова и затем тест не прошёл потому что его значение неверно значит нужно изменить эту функцию прежде чем кто то запустит новую сборку на старой ветке без кэша сегодня",
    "arabic": "تمت قراءة الملف مرة أخرى ثم فشل الاختبار لأن قيمته خاطئة لذلك يجب تغيير هذه الدالة قبل أن يبدأ أي شخص بناء جديدا على الفرع القديم بدون ذاكرة اليوم هنا الآن",
    "korean": "파일을 다시 읽었고 값이 틀려서 테스트가 실패했으므로 누군가 오래된 가지에서 새 빌드를 시작하기 전에 이 함수를 바꿔야 합니다 오늘 여기에서 다른 사람과 함께",
    "code": "for item in items if item is None continue total += item.price * count return round total 2 else raise",
}
_UNSPACED = {
    "chinese": "文件被再次读取然后测试失败因为它的值是错误的所以我们必须在任何人启动新构建之前更改此函数今天没有缓存留在这里",
    "japanese": "ファイルを再び読んだところ値が間違っていたためテストが失敗したので誰かが新しく始める前にこの関数を変える必要がある",
    "thai": "ไฟล์ถูกอ่านอีกครั้งแล้วการทดสอบล้มเหลวเพราะค่าไม่ถูกต้องดังนั้นเราต้องเปลี่ยนฟังก์ชันนี้",
}
LANGUAGES = (*_SPACED, *_UNSPACED)

LEGITIMATE: dict[str, Callable[..., str]] = {}
"""By kind: a seed -> text, the same each time."""


def loop(language: str, period: int, tokens: int) -> str:
    """A unit of `period` words, or characters where words are not spaced, over and over.

    Up to as many as the language has here it is a sentence; longer ones are words by lot.
    """
    spaced = language in _SPACED
    parts = _SPACED[language].split() if spaced else list(_UNSPACED[language])
    unit = parts[:period] if period <= len(parts) else random.Random(period).choices(parts, k=period)
    separator = " " if spaced else ""
    return (separator.join(unit) + separator) * (tokens // period + 1)


def prose(chance: random.Random, words: int) -> str:
    """Sentences that nobody would call a loop: words by lot, most of them not of any language."""
    made = ("".join(chance.choices("abdefgiklmnoprstuvz", k=chance.randint(2, 9))) for _ in range(words))
    return "".join(word + chance.choice([" ", " ", " ", " ", ", ", ". "]) for word in made)


def deltas(text: str) -> Iterator[str]:
    """The text as a stream has it: pieces of 1 to 12 characters."""
    chance, start = random.Random(len(text)), 0
    while start < len(text):
        size = chance.randint(1, 12)
        yield text[start : start + size]
        start += size


def _legitimate(make: Callable[[random.Random], Iterator[str]]) -> Callable[[random.Random], Iterator[str]]:
    kind = make.__name__
    LEGITIMATE[kind] = lambda seed=0: "".join(make(random.Random(f"{kind}{seed or ''}")))
    return make


@_legitimate
def csv(chance: random.Random) -> Iterator[str]:
    yield "id,day,rate,currency,state,count\n"
    for n in range(900):
        yield f"{n},2026-03-{n % 28 + 1:02},{chance.random():.4f},EUR,ok,{chance.randrange(99)}\n"


@_legitimate
def sparse_csv(chance: random.Random) -> Iterator[str]:
    for _ in range(400):
        yield ",".join(str(chance.randrange(9)) if chance.random() < 0.2 else "0" for _ in range(30)) + "\n"


@_legitimate
def json_lines(chance: random.Random) -> Iterator[str]:
    for n in range(400):
        user = {"name": f"u{chance.randrange(50)}", "age": chance.randrange(99)}
        yield (
            json.dumps({"id": n, "event": chance.choice(["open", "close"]), "user": user, "ok": True}) + "\n"
        )


@_legitimate
def indented_json(_: random.Random) -> Iterator[str]:
    items = [
        {"id": n, "name": f"item {n}", "tags": ["a", "b"], "price": n * 1.5, "stock": None}
        for n in range(300)
    ]
    yield json.dumps(items, indent=4)


@_legitimate
def access_log(chance: random.Random) -> Iterator[str]:
    for n in range(500):
        path, size = f"/item/{chance.randrange(999)}", chance.randrange(9999)
        yield f'10.0.0.{chance.randrange(250)} - - [12/Mar/2026:10:{n // 60:02}:{n % 60:02}] "GET {path} HTTP/1.1" 200 {size}\n'


@_legitimate
def test_output(chance: random.Random) -> Iterator[str]:
    for n in range(600):
        yield f"tests/unit/test_{n % 40}.py::test_case_{n} PASSED [{n // 6:3}%] ({chance.randrange(90)} ms)\n"


@_legitimate
def progress(chance: random.Random) -> Iterator[str]:
    for n in range(300):
        yield f"\repoch {n}/300 [{'=' * (n // 10):30}] loss: {chance.random():.5f} acc: {chance.random():.5f}"


@_legitimate
def markdown_table(chance: random.Random) -> Iterator[str]:
    yield "| name | size | kind | note |\n| --- | --- | --- | --- |\n"
    for n in range(400):
        yield f"| file_{n}.txt | {chance.randrange(9999)} | text | |\n"


@_legitimate
def padded_table(chance: random.Random) -> Iterator[str]:
    for n in range(300):
        yield f"{f'row {n}':<60}{chance.randrange(999):<60}{'ok':>40}\n"


@_legitimate
def boxed_table(chance: random.Random) -> Iterator[str]:
    for n in range(150):
        yield f"+{'-' * 30}+{'-' * 20}+\n| {n:<28} | {chance.choice(['red', 'blue']):<18} |\n"


@_legitimate
def base64_wrapped(chance: random.Random) -> Iterator[str]:
    yield base64.encodebytes(chance.randbytes(30_000)).decode()


@_legitimate
def base64_in_one_line(chance: random.Random) -> Iterator[str]:
    yield base64.b64encode(chance.randbytes(30_000)).decode()


@_legitimate
def hex_dump(chance: random.Random) -> Iterator[str]:
    for n in range(400):
        data = chance.randbytes(16) if n % 3 else bytes(16)
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)
        yield f"{n * 16:08x}  {data.hex(' ')}  |{shown}|\n"


@_legitimate
def lock_file(chance: random.Random) -> Iterator[str]:
    for n in range(300):
        yield f'[[package]]\nname = "crate-{chance.choice(["core", "util", "macro"])}-{n}"\n'
        yield f'version = "{chance.randrange(3)}.{chance.randrange(20)}.{chance.randrange(9)}"\n'
        yield f'source = "registry+https://example.org/index"\nchecksum = "{chance.randbytes(32).hex()}"\n\n'


@_legitimate
def minified_code(chance: random.Random) -> Iterator[str]:
    for n in range(500):
        a, b = chance.choice("abcdefg"), chance.choice("hijklmn")
        yield f"function {a}{n}({b}){{return {b}?{a}{n - 1}({b}-{chance.randrange(9)}):null}};"


@_legitimate
def verses(_: random.Random) -> Iterator[str]:
    for left in range(99, 0, -1):
        now, then = (f"{n or 'no more'} bottle{'s' * (n != 1)} of beer" for n in (left, left - 1))
        yield f"{now.capitalize()} on the wall, {now}.\nTake one down and pass it around, {then} on the wall.\n\n"


@_legitimate
def sql_inserts(chance: random.Random) -> Iterator[str]:
    for n in range(400):
        values = f"({n}, 'item {chance.randrange(999)}', {chance.random():.2f})"
        yield f"INSERT INTO items (id, name, price) VALUES {values};\n"


@_legitimate
def html_list(chance: random.Random) -> Iterator[str]:
    for n in range(400):
        yield f'  <li class="item"><a href="/item/{n}">Item {chance.randrange(999)}</a></li>\n'


@_legitimate
def diff(chance: random.Random) -> Iterator[str]:
    for n in range(300):
        old, new = chance.randrange(99), chance.randrange(99)
        yield f"@@ -{n},1 +{n},1 @@\n-    value_{n} = {old}\n+    value_{n} = {new}\n"


@_legitimate
def assertions(chance: random.Random) -> Iterator[str]:
    for n in range(400):
        yield f"    assert add({n}, {chance.randrange(99)}) == {chance.randrange(999)}\n"


@_legitimate
def yaml(chance: random.Random) -> Iterator[str]:
    for n in range(250):
        yield f"- name: task {n}\n  image: example/{chance.choice(['a', 'b'])}:1.{n}\n"
        yield f"  env:\n    - name: KEY\n      value: {chance.randrange(999)}\n  restart: always\n"


@_legitimate
def chinese_report(chance: random.Random) -> Iterator[str]:
    for n in range(300):
        yield f"第{n}行：名称为项目{chance.randrange(999)}，价格{chance.randrange(99)}元，状态正常。\n"


@_legitimate
def multiplication_table(_: random.Random) -> Iterator[str]:
    for n in range(1, 40):
        yield " ".join(f"{n} x {m} = {n * m};" for m in range(1, 13)) + "\n"


@_legitimate
def divided_sections(chance: random.Random) -> Iterator[str]:
    words = _SPACED["english"].split()
    for n in range(60):
        yield f"{'=' * 78}\nSection {n}: {' '.join(chance.choices(words, k=40))}\n{'-' * 78}\n"


@_legitimate
def poem_with_a_refrain(chance: random.Random) -> Iterator[str]:
    refrain = f"O {prose(chance, 6)}\nO {prose(chance, 6)}\nand {prose(chance, 5)}\n\n"
    for _ in range(40):
        yield "".join(f"{prose(chance, 7)}\n" for _ in range(4)) + "\n" + refrain


@_legitimate
def twelve_verses(chance: random.Random) -> Iterator[str]:
    gifts = [f"{n} {prose(chance, 2)}" for n in range(1, 13)]
    for day in range(1, 13):
        yield f"On day {day} somebody sent to me: {', '.join(reversed(gifts[:day]))}.\n"


@_legitimate
def requirements(chance: random.Random) -> Iterator[str]:
    for _ in range(500):
        name = "".join(chance.choices("abcdefghij-", k=9)).strip("-")
        yield f"{name}=={chance.randrange(9)}.{chance.randrange(30)}.{chance.randrange(9)}\n"


@_legitimate
def commits(chance: random.Random) -> Iterator[str]:
    for n in range(250):
        yield f"commit {chance.randbytes(20).hex()}\nAuthor: A. Person <a@example.org>\n"
        yield f"Date:   2026-03-{n % 28 + 1:02} 10:{chance.randrange(60):02}\n\n    {prose(chance, 7)}\n\n"


@_legitimate
def checklist(chance: random.Random) -> Iterator[str]:
    for _ in range(400):
        yield f"- [{chance.choice(' x')}] {prose(chance, 5)}\n"


@_legitimate
def stylesheet(chance: random.Random) -> Iterator[str]:
    for n in range(250):
        color = chance.randbytes(3).hex()
        yield f".item-{n} {{\n  color: #{color};\n  margin: {chance.randrange(40)}px;\n  padding: 0;\n}}\n"


@_legitimate
def xml(chance: random.Random) -> Iterator[str]:
    for n in range(300):
        yield f'<row id="{n}"><name>{prose(chance, 2)}</name><count>{chance.randrange(99)}</count></row>\n'


@_legitimate
def settings_file(chance: random.Random) -> Iterator[str]:
    for n in range(250):
        yield f"[section.{n}]\nenabled = {chance.choice(['true', 'false'])}\nlimit = {chance.randrange(999)}\n\n"


@_legitimate
def vector_path(chance: random.Random) -> Iterator[str]:
    yield "M 0 0 "
    for _ in range(900):
        yield f"L {chance.randrange(500)} {chance.randrange(500)} "


@_legitimate
def matrix(chance: random.Random) -> Iterator[str]:
    for _ in range(80):
        yield "[" + ", ".join(f"{chance.gauss(0, 1):.3f}" for _ in range(12)) + "],\n"


@_legitimate
def test_functions(chance: random.Random) -> Iterator[str]:
    for n in range(150):
        name = prose(chance, 2).replace(" ", "_").strip("_,.")
        yield f"def test_{name}_{n}(client):\n    answer = client.get('/{n}')\n"
        yield f"    assert answer.status == {chance.choice([200, 404])}\n\n\n"


@_legitimate
def fields_of_a_class(chance: random.Random) -> Iterator[str]:
    for _ in range(400):
        name = "_".join("".join(chance.choices("aeioulmnrst", k=5)) for _ in range(2))
        yield f"    {name}: {chance.choice(['int', 'str', 'float'])} = {chance.choice(['0', 'None'])}\n"


@_legitimate
def word_list(chance: random.Random) -> Iterator[str]:
    for _ in range(2_500):
        yield "".join(chance.choices("abdefgiklmnoprstuvz", k=chance.randint(2, 9))) + "\n"


@_legitimate
def licence_headers(chance: random.Random) -> Iterator[str]:
    header = f"# {prose(chance, 12)}\n# {prose(chance, 12)}\n# {prose(chance, 12)}\n\n"
    for n in range(40):
        yield f"### file_{n}.py\n{header}"
        yield "".join(f"{prose(chance, 1).strip()}({chance.randrange(99)})\n" for _ in range(20))


@_legitimate
def a_file_shown_twice(chance: random.Random) -> Iterator[str]:
    file = "".join(f"value_{chance.randrange(9_999)} = {prose(chance, 4)}\n" for _ in range(200))
    yield f"Before:\n{file}\nAfter the change of the last line:\n{file}end = True\n"
