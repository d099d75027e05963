#include "core/temporary_name.h"

#include <signal.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>

namespace gradus {
namespace {

constexpr std::string_view kTemporaryMark = ".tmp-";
constexpr size_t kHalfToken = 8;
// A token begins with a letter that is no hexadecimal digit: a process number is never one.
constexpr char kTokenMark = 'x';
constexpr size_t kTokenLength = 1 + 2 * kHalfToken;
// File systems allow 255 bytes for a name.
constexpr size_t kLongestName = 200;

std::string random_digits() {
  uint32_t value = 0;
  if (::getrandom(&value, sizeof value, GRND_NONBLOCK) != ssize_t(sizeof value))
    value = uint32_t(std::random_device{}());
  constexpr char kDigits[] = "0123456789abcdef";
  std::string digits;
  for (int shift = 28; shift >= 0; shift -= 4) digits += kDigits[(value >> shift) & 0xf];
  return digits;
}

// The half of the token that all names of this process share.
std::string process_half() {
  static const std::string digits = random_digits();
  return digits;
}

std::optional<int64_t> process_number(std::string_view digits) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value <= 0)
    return std::nullopt;
  return value;
}

// Whether a process has ended and only its number is left, until its parent asks for it.
bool is_zombie(int64_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto name_end = text.rfind(") ");  // the name before it may hold anything
  return name_end != std::string::npos && text.size() > name_end + 2 && text[name_end + 2] == 'Z';
}

bool is_running(int64_t process) {
  return (::kill(pid_t(process), 0) == 0 || errno == EPERM) && !is_zombie(process);
}

bool is_token(std::string_view text) {
  return text.size() == kTokenLength && text.front() == kTokenMark &&
         std::all_of(text.begin() + 1, text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// Takes what follows the last '-' off `text`.
std::string_view take_last_word(std::string_view& text) {
  const auto dash = text.rfind('-');
  if (dash == std::string_view::npos) return {};
  const auto word = text.substr(dash + 1);
  text = text.substr(0, dash);
  return word;
}

}  // namespace

std::string temporary_name(std::string_view name) {
  if (name.size() > kLongestName) {
    size_t end = kLongestName;
    while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;
    name = name.substr(0, end);
  }
  std::string made(kTemporaryMark);
  made.append(name).append("-").append(std::to_string(::getpid())).append("-");
  made += kTokenMark;
  return made + process_half() + random_digits();
}

bool is_abandoned_temporary(std::string_view file_name) {
  if (!file_name.starts_with(kTemporaryMark)) return false;
  if (file_name == ".tmp-model") return true;
  auto rest = file_name;
  const auto last = take_last_word(rest);
  if (is_token(last)) {
    const auto owner = process_number(take_last_word(rest));
    if (!owner) return false;
    // A process in a container often gets the number of the one before it.
    if (*owner == ::getpid()) return last.substr(1, kHalfToken) != process_half();
    return !is_running(*owner);
  }
  if (!file_name.starts_with(".tmp-checkpoint-")) return false;
  const auto owner = process_number(last);
  return owner && (*owner == ::getpid() || !is_running(*owner));
}

}  // namespace gradus
