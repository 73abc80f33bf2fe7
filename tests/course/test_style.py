import itertools

import matplotlib as mpl
import matplotlib.colors
import matplotlib.pyplot as plt
import pytest

from minimoe.course import style


def _seen_by(colour, kind):
    """Luminance and the two opponent axes, one of them flattened (a rough model of dichromacy)."""
    red, green, blue = matplotlib.colors.to_rgb(colour)
    light = 0.3 * red + 0.6 * green + 0.1 * blue
    yellow_blue = (red + green) / 2 - blue
    red_green = red - green if kind == "full" else 0.0
    return light, yellow_blue, red_green


@pytest.mark.parametrize("kind", ["full", "red-green blind"])
def test_colours_of_series_differ(kind):
    for one, other in itertools.combinations(style.SERIES, 2):
        pairs = zip(_seen_by(one, kind), _seen_by(other, kind), strict=True)
        assert sum((a - b) ** 2 for a, b in pairs) ** 0.5 > 0.1, (one, other)


def test_series_differ_without_colour():
    assert len(set(style.MARKERS)) == len(style.SERIES) == len({str(line) for line in style.LINES})


def test_use_sets_the_style():
    with mpl.rc_context():
        style.use()
        figure, axes = plt.subplots()
        lines = [axes.plot([0, 1], [n, n])[0] for n in range(3)]
        assert figure.dpi == 100
        assert len({(line.get_color(), line.get_marker()) for line in lines}) == 3
        plt.close(figure)


def test_source_label():
    figure, axes = style.new_figure()
    style.source_label(axes, "reported: the DeepInfer post")
    assert figure.get_supxlabel().startswith("reported")
    with pytest.raises(ValueError, match="label 'guessed' is unknown"):
        style.source_label(axes, "guessed")
    plt.close(figure)
