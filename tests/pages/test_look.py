"""Colours of all pages: readable by WCAG AA, light and dark."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from rss_rl.pages.assets import asset

Colour = NDArray[np.float64]
"""Linear sRGB, [3]."""

THEMES = {"light": 0, "dark": 1}
READ_ON = {"text": ("page", "card"), "soft": ("page", "card"), "faint": ("page", "card")}
TEXT_ON_MIX = {"shade": 1.0, "less": 1.0}
"""Backgrounds of words, and how strong they become at most."""
DRAWN = ("bar", "series-1", "series-2", "series-3", "series-4", "head", "dependent", "look")


def palette(theme: str) -> dict[str, Colour]:
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", asset("look.css"))
    return {name: linear(both[THEMES[theme]]) for name, *both in pairs}


def linear(code: str) -> Colour:
    values = np.array([int(code[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: Colour, other: Colour) -> float:
    """By WCAG 2, from 1 to 21."""
    dark, light = sorted(float(np.dot(c, (0.2126, 0.7152, 0.0722))) for c in (one, other))
    return (light + 0.05) / (dark + 0.05)


LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
OKLAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def oklab(colour: Colour) -> Colour:
    return np.asarray(OKLAB @ np.cbrt(LMS @ colour))


def mixed(one: Colour, other: Colour, share: float) -> Colour:
    """`color-mix(in oklab, one share, other)`."""
    lab = share * oklab(one) + (1 - share) * oklab(other)
    return np.clip(np.linalg.inv(LMS) @ (np.linalg.inv(OKLAB) @ lab) ** 3, 0, 1)


@pytest.mark.parametrize("theme", THEMES)
def test_text_has_a_contrast_of_four_and_a_half(theme: str) -> None:
    colours = palette(theme)
    found = {
        (text, ground): round(contrast(colours[text], colours[ground]), 2)
        for text, grounds in READ_ON.items()
        for ground in grounds
    }
    assert not {pair: value for pair, value in found.items() if value < 4.5}


@pytest.mark.parametrize("theme", THEMES)
def test_words_stay_readable_however_strongly_they_are_shaded(theme: str) -> None:
    colours = palette(theme)
    card, text, faint = colours["card"], colours["text"], colours["faint"]
    for name, most in TEXT_ON_MIX.items():
        for level in np.linspace(0, most, 21):
            ground = mixed(colours[name], card, level)
            assert contrast(text, ground) >= 4.5, (name, level)
            out = mixed(text, faint, level)  # a word that is not kept
            assert contrast(out, ground) >= 4.5, (name, level)


@pytest.mark.parametrize("theme", THEMES)
def test_lines_and_bars_have_a_contrast_of_three(theme: str) -> None:
    colours = palette(theme)
    grounds = (colours["card"], colours["page"])
    found = {name: min(contrast(colours[name], ground) for ground in grounds) for name in DRAWN}
    assert not {name: value for name, value in found.items() if value < 3}
