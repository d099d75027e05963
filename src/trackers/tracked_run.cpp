#include "trackers/tracked_run.h"

#include <fmt/format.h>
#include <gradus/core/json.h>
#include <locale.h>
#include <pwd.h>
#include <unistd.h>
#include <wctype.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <random>
#include <utility>

namespace gradus::tracked {

nlohmann::json config(const TrackedRun& run) {
  auto all = run.model_config.is_object() ? run.model_config : nlohmann::json::object();
  if (run.args.is_object()) all.update(run.args);
  if (run.parameters) all["model/num_parameters"] = *run.parameters;
  return all;
}

std::string argument(const TrackedRun& run, const std::string& name) {
  if (!run.args.is_object()) return "";
  const auto found = run.args.find(name);
  return found != run.args.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool environment_says_yes(const char* name) {
  auto value = environment(name);
  std::transform(value.begin(), value.end(), value.begin(),
                 [](unsigned char letter) { return char(std::toupper(letter)); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

bool is_single_value(const std::string& key) {
  return key == "train_runtime" || key == "train_samples_per_second" ||
         key == "train_steps_per_second" || key == "train_loss" || key == "total_flos";
}

std::string json_number(double value) { return dump_json(nlohmann::json(value)); }

std::u32string characters(std::string_view text) {
  constexpr char32_t kUnreadable = 0xfffd;
  std::u32string found;
  for (size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at++]);
    const size_t more = lead < 0xc0 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    if (lead < 0x80) {
      found += char32_t(lead);
      continue;
    }
    char32_t character = lead & (0x3fu >> more);
    size_t read = 0;
    while (read < more && at < text.size() && (text[at] & 0xc0) == 0x80) {
      character = character << 6 | (static_cast<unsigned char>(text[at++]) & 0x3fu);
      ++read;
    }
    found += more > 0 && read == more ? character : kUnreadable;
  }
  return found;
}

bool is_letter_or_digit(char32_t character) {
  if (character < 0x80) return std::isalnum(int(character)) != 0;
  static const locale_t kUnicode = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return kUnicode != nullptr && ::iswalnum_l(wint_t(character), kUnicode) != 0;
}

std::string random_text(size_t digits, std::string_view letters) {
  // The processor's own source takes several microseconds a number on some machines. No generator
  // per thread: a library with that much thread storage cannot be loaded by dlopen().
  static std::mutex mutex;
  static std::mt19937_64 source;
  static pid_t seeded_in = 0;  // a forked process needs numbers of its own
  const std::lock_guard lock(mutex);
  if (const pid_t here = ::getpid(); std::exchange(seeded_in, here) != here) {
    std::random_device device;
    std::seed_seq seeds{device(), device(), device(), device(), device(), device()};
    source.seed(seeds);
  }
  std::uniform_int_distribution<size_t> pick(0, letters.size() - 1);
  std::string text;
  for (size_t i = 0; i < digits; ++i) text += letters[pick(source)];
  return text;
}

std::string random_run_name() {
  constexpr std::array kAdjectives = {"amber", "brave",  "calm",  "clear", "early", "gentle",
                                      "keen",  "lively", "quiet", "rapid", "solid", "warm"};
  constexpr std::array kNouns = {"brook",  "cloud", "field", "forest", "harbor", "hill",
                                 "meadow", "river", "shore", "stone",  "valley", "wind"};
  std::random_device source;
  return fmt::format("{}-{}-{}", kAdjectives[source() % kAdjectives.size()],
                     kNouns[source() % kNouns.size()], source() % 1000);
}

std::string iso_time(double seconds) {
  const auto whole = std::time_t(std::floor(seconds));
  std::tm utc{};
  ::gmtime_r(&whole, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:06d}+00:00", text, int((seconds - double(whole)) * 1e6));
}

std::string local_time(double seconds, const char* format) {
  const auto whole = std::time_t(seconds);
  std::tm local{};
  ::localtime_r(&whole, &local);
  char text[64];
  std::strftime(text, sizeof text, format, &local);
  return text;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

std::string user_name() {
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found) == 0 &&
      found != nullptr)
    return entry.pw_name;
  return std::to_string(::getuid());
}

}  // namespace gradus::tracked
