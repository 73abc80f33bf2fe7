import matplotlib.pyplot as plt
import pytest

from minimoe.course import picture


@pytest.fixture(scope="module")
def recorded():
    return picture.record("def area(r):", new_tokens=6)


def test_record_follows_prompt_and_answer(recorded):
    words, given, routes = recorded
    assert len(words) == given + 6 == routes.ids.shape[1]
    assert "".join(words[1:given]) == "def area(r):"


def test_every_choice_is_a_mark(recorded):
    figure = picture.draw(*recorded)
    layers, tokens, chosen = recorded[2].ids.shape
    marks = [len(marks.get_offsets()) for marks in figure.axes[0].collections[:layers]]
    assert marks == [tokens * chosen] * layers
    plt.close(figure)


def test_main_writes_a_file(tmp_path, monkeypatch, capsys, recorded):
    monkeypatch.setattr(picture, "record", lambda: recorded)
    out = tmp_path / "docs" / "a.png"
    assert picture.main(["--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG") and "kB" in capsys.readouterr().out
    plt.close("all")
