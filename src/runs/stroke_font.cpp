#include "runs/stroke_font.h"

#include <array>
#include <string_view>

namespace gradus::runs {
namespace {

/// A letter: strokes parted by blanks, each a row of digits x y x y …, on a grid of 5 by 9. y is
/// counted from two below the line, so that 2 is the line, 6 the height of small letters, 8 that of
/// capitals.
struct Letter {
  char letter;
  std::string_view strokes;
};

constexpr std::array kLetters = {
    Letter{'0', "131728384743322213"},
    Letter{'1', "172822 1232"},
    Letter{'2', "17283847461242"},
    Letter{'3', "1728384746354443322213 2535"},
    Letter{'4', "38144444 3832"},
    Letter{'5', "481815354443322213"},
    Letter{'6', "473828171322324344352514"},
    Letter{'7', "18484722"},
    Letter{'8', "25161728384746352514132232434435"},
    Letter{'9', "132232434738281716253546"},
    Letter{'A', "12284842 1545"},
    Letter{'B', "12183847463515 3544433212"},
    Letter{'C', "4738281713223243"},
    Letter{'D', "12183847433212"},
    Letter{'E', "48181242 1535"},
    Letter{'F', "481812 1535"},
    Letter{'G', "47382817132232434535"},
    Letter{'H', "1812 4842 1545"},
    Letter{'I', "2822 1838 1232"},
    Letter{'J', "484332221314"},
    Letter{'K', "1812 481542"},
    Letter{'L', "181242"},
    Letter{'M', "1218254842"},
    Letter{'N', "12184248"},
    Letter{'O', "131728384743322213"},
    Letter{'P', "12183847463515"},
    Letter{'Q', "131728384743322213 3342"},
    Letter{'R', "12183847463515 2542"},
    Letter{'S', "473828171625354443322213"},
    Letter{'T', "1848 2822"},
    Letter{'U', "181322324348"},
    Letter{'V', "182248"},
    Letter{'W', "1812253242 4842"},
    Letter{'X', "1842 4812"},
    Letter{'Y', "182548 2522"},
    Letter{'Z', "18481242"},
    Letter{'a', "453626151322324345 4642"},
    Letter{'b', "131526364543322213 1812"},
    Letter{'c', "4536261513223243"},
    Letter{'d', "453626151322324345 4842"},
    Letter{'e', "14444536261513223243"},
    Letter{'f', "4738282722 1636"},
    Letter{'g', "453626151322324345 4641302011"},
    Letter{'h', "1812 1426364542"},
    Letter{'i', "2622 2728"},
    Letter{'j', "36312011 3738"},
    Letter{'k', "1812 461442"},
    Letter{'l', "18282332"},
    Letter{'m', "1612 15262522 25364542"},
    Letter{'n', "1612 1426364542"},
    Letter{'o', "151322324345362615"},
    Letter{'p', "131526364543322213 1610"},
    Letter{'q', "453626151322324345 4640"},
    Letter{'r', "1612 14263645"},
    Letter{'s', "45362615243443322213"},
    Letter{'t', "28233242 1636"},
    Letter{'u', "161322324346 4642"},
    Letter{'v', "162246"},
    Letter{'w', "1612243242 4642"},
    Letter{'x', "1642 4612"},
    Letter{'y', "162332 46312010"},
    Letter{'z', "16461242"},
    Letter{'.', "2223"},
    Letter{',', "232110"},
    Letter{':', "2223 2526"},
    Letter{';', "232110 2526"},
    Letter{'-', "1535"},
    Letter{'+', "1545 3733"},
    Letter{'_', "1141"},
    Letter{'/', "1148"},
    Letter{'\\', "1841"},
    Letter{'(', "38272332"},
    Letter{')', "18272312"},
    Letter{'[', "38282232"},
    Letter{']', "18282212"},
    Letter{'{', "38282615242232"},
    Letter{'}', "18282635242212"},
    Letter{'=', "1444 1646"},
    Letter{'<', "461442"},
    Letter{'>', "164412"},
    Letter{'%', "1248 1718 4243"},
    Letter{'#', "2822 3832 1545 1646"},
    Letter{'*', "2836 3826 1747"},
    Letter{'!', "2825 2223"},
    Letter{'?', "17283847463534 3233"},
    Letter{'@', "473828171322324344353445"},
    Letter{'&', "42172837461513223244"},
    Letter{'\'', "2826"},
    Letter{'"', "1816 3836"},
    Letter{'|', "2820"},
    Letter{'~', "15263544"},
    Letter{'^', "162836"},
    Letter{'$', "473727161525354443332313 2821"},
    Letter{'`', "1827"},
};

constexpr double kBelow = 2;

}  // namespace

std::vector<std::vector<Spot>> letter_strokes(char letter) {
  if (letter == ' ') return {};
  std::string_view strokes = "1848421218";  // a box, for what there is not
  for (const auto& each : kLetters)
    if (each.letter == letter) strokes = each.strokes;
  std::vector<std::vector<Spot>> found(1);
  for (size_t i = 0; i < strokes.size();) {
    if (strokes[i] == ' ') {
      found.emplace_back();
      ++i;
      continue;
    }
    const int x = strokes[i] - '0', y = strokes[i + 1] - '0';
    i += 2;
    found.back().push_back({double(x) - 0.6, double(y) - kBelow});
  }
  return found;
}

double letter_width(char letter) {
  switch (letter) {
    case ' ': return 3;
    case '.':
    case ',':
    case ':':
    case ';':
    case '!':
    case '\'':
    case '|':
    case 'i': return 3.2;
    case 'l':
    case 'I':
    case '(':
    case ')':
    case '[':
    case ']':
    case '-': return 4;
    case '1': return 4.2;
    default: return 5;
  }
}

}  // namespace gradus::runs
