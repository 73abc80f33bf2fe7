import ipywidgets
import pytest

from minimoe.course import widgets


def test_kinds_of_controls():
    control = widgets._control
    whole = control("batch_size", (1, 64))
    assert isinstance(whole, ipywidgets.IntSlider) and (whole.value, whole.step) == (1, 1)
    assert whole.description == "batch size" and not whole.continuous_update
    real = control("x", (0.0, 1.0, 0.1, 0.5))
    assert isinstance(real, ipywidgets.FloatSlider) and (real.value, real.step) == (0.5, 0.1)
    assert control("domain", ["code", "story"]).options == ("code", "story")
    assert control("spares", True).value is True


@pytest.mark.parametrize("spec", [(), (1,), (2, 1), [], "code", 3, (1, 2, 3, 4, 5)])
def test_unknown_controls_are_one_clear_line(spec):
    with pytest.raises(ValueError, match=r"the control x=.* is unknown: give"):
        widgets._control("x", spec)


def test_moving_a_slider_calls_the_function(monkeypatch):
    shown, calls = [], []
    monkeypatch.setattr(widgets, "display", lambda *parts: shown.extend(parts))
    widgets.sliders(lambda size, kind: calls.append((size, kind)), size=(1, 4), kind=["a", "b"])
    slider = shown[0].children[0]
    slider.value = 3
    assert calls == [(1, "a"), (3, "a")]
