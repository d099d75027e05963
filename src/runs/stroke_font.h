#pragma once

#include <vector>

#include "runs/canvas.h"

namespace gradus::runs {

/// Height of a capital letter in the units of `letter_strokes`; small letters are two thirds of it
/// high, and some reach two units below the line.
inline constexpr double kLetterHeight = 6;

/// The strokes of a letter: lines through spots, from the lower left corner to the right and up.
std::vector<std::vector<Spot>> letter_strokes(char letter);

/// How far the next letter is to the right.
double letter_width(char letter);

}  // namespace gradus::runs
