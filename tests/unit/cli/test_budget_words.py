import pytest

from zubble_queue.cli import main


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["show", "b"], "'b' is no account: give batch/NAME or tenant/NAME."),
        (["show", "user/me"], "'user/me' is no account: give batch/NAME or tenant/NAME."),
        (["set", "batch/b", "-1"], "No such option: -1"),
        (
            ["set", "batch/b", "0"],
            "A ceiling must be above 0 and at most 1,000,000 US dollars, or none; got '0'.",
        ),
        (["set", "batch/b", "nan"], "A ceiling must be above 0"),
        (["set", "batch/b", "much"], "A ceiling must be above 0"),
    ],
)
def test_a_wrong_word_is_one_sentence(clean_environment, capsys, words, problem):
    code = main(["budget", *words])

    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert said.err.startswith(problem)
    assert len(said.err.splitlines()) == 1
