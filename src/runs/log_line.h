#pragma once

#include <functional>
#include <string_view>

namespace gradus::runs {

/// Reads one line of a log: a JSON object whose values are numbers.
///
/// `number` gets every key with its number; NaN, Infinity, true and false are numbers, too. Texts
/// and null are passed over. Returns false for a line that holds anything else (an array, an object
/// in the object, a key with an escape) or is no JSON object; some numbers may have been given by
/// then. A million lines take a fraction of a second.
template <class Number>
bool read_log_line(std::string_view line, Number number);

/// One step of it: takes `"key": value` or `}` from the front of `rest`. The kinds of values that
/// are no number leave `is_number` false. Returns false when the line is not understood.
struct LogMember {
  std::string_view key;
  double value = 0;
  bool is_number = false;
  bool is_end = false;
};
bool take_log_member(std::string_view& rest, LogMember& member);

template <class Number>
bool read_log_line(std::string_view line, Number number) {
  if (line.empty() || line.front() != '{') return false;
  line.remove_prefix(1);
  for (LogMember member; take_log_member(line, member);) {
    if (member.is_end) return true;
    if (member.is_number) number(member.key, member.value);
  }
  return false;
}

}  // namespace gradus::runs
