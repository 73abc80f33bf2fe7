import matplotlib.pyplot as plt
import pytest
import torch

from minimoe.course import figures
from minimoe.course.routing import Routes


@pytest.fixture(autouse=True)
def drawn(monkeypatch):
    """Figures are drawn for real and closed."""
    figures_seen = []

    def show():
        figure = plt.gcf()
        figure.canvas.draw()
        figures_seen.append(figure)

    monkeypatch.setattr(plt, "show", show)
    yield figures_seen
    plt.close("all")


def test_map_has_a_box_per_part_and_none_overlaps(drawn):
    figures.deepinfer_map()
    assert len(drawn) == 1
    for index, one in enumerate(figures.PARTS):
        for other in figures.PARTS[index + 1 :]:
            apart_x = abs(one.x - other.x) >= min(one.width, other.width)
            assert apart_x or abs(one.y - other.y) > figures.HEIGHT, (one.name, other.name)


def test_names_fit_their_boxes(drawn):
    figures.deepinfer_map()
    axes = drawn[0].axes[0]
    unit = axes.transData.transform((1, 0))[0] - axes.transData.transform((0, 0))[0]
    widths = {text.get_text(): text.get_window_extent().width / unit for text in axes.texts}
    assert all(widths[box.name] <= box.width for box in figures.PARTS)


def test_parts_text_counts():
    assert "10 parts drawn, 6 were released and 4 kept back" in figures.parts_text()


def test_token_path(drawn, capsys):
    ids = torch.tensor([[[0, 1]], [[2, 3]]])
    routes = Routes(ids, torch.full((2, 1, 2), 0.75), torch.ones(4, 1), first=1)
    figures.token_path(routes, ["a"], 0)
    offsets = drawn[0].axes[0].collections[0].get_offsets().tolist()
    assert offsets == [[0, 1], [1, 1], [2, 2], [3, 2]]
    assert capsys.readouterr().out == "token 0, 'a', its experts layer by layer:\n0 1 | 2 3\n"


def test_relative_load_and_differences():
    even, odd = torch.tensor([[2, 2, 0, 0]]), torch.tensor([[0, 0, 2, 2]])
    assert figures.relative_load(even[0]).tolist() == [2, 2, 0, 0]
    table = figures.differences({"code": even, "story": odd})
    assert table.splitlines()[1].split() == ["code", "0.00", "1.00"]


def test_use_by_domain(drawn, capsys):
    even, odd = (
        torch.tensor([[0, 0, 0, 0], [2, 2, 0, 0]]),
        torch.tensor([[1, 0, 0, 0], [0, 0, 1, 1]]),
    )
    figures.use_by_domain({"code": even, "story": odd}, {"code": 0.75, "story": 0.25}, layer=2)
    rows = drawn[0].axes[0].images[0].get_array().tolist()
    assert rows == [[2, 2, 0, 0], [0, 0, 2, 2], [1.5, 1.5, 0.5, 0.5]]
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert table[0] == ["layer", "2", "code", "story", "training", "mix"]
    assert table[1][-3:] == ["2.0", "2.0", "1.5"] and table[2][-3:] == ["0.50", "0.50", "0.25"]
