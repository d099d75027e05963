#include "search/process_owner.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace gradus::search {
namespace {

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// When a process began, in ticks since the machine did; empty when there is no such process or only
// what is left of it until its parent looks.
std::string start_of_process(int64_t process) {
  const auto line = first_line("/proc/" + std::to_string(process) + "/stat");
  const auto after_name = line.rfind(')');
  if (after_name == std::string::npos) return "";
  std::istringstream rest(line.substr(after_name + 1));
  std::string word, state;
  rest >> state;
  if (state == "Z" || state == "X") return "";
  constexpr int kWordsToStart = 19;  // field 22; the state was field 3
  for (int i = 0; i < kWordsToStart; ++i) rest >> word;
  return word;
}

}  // namespace

nlohmann::json this_process() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return {{"host", host},
          {"boot", first_line("/proc/sys/kernel/random/boot_id")},
          {"pid", int64_t(::getpid())},
          {"start", start_of_process(::getpid())}};
}

bool is_gone(const nlohmann::json& process) {
  if (!process.is_object()) return false;
  const auto here = this_process();
  const auto noted = [&](const char* key) { return process.value(key, nlohmann::json()); };
  if (noted("host") != here.at("host")) return false;
  if (noted("boot") != here.at("boot")) return true;
  const auto pid = noted("pid");
  if (!pid.is_number_integer()) return true;
  return nlohmann::json(start_of_process(pid.get<int64_t>())) != noted("start");
}

}  // namespace gradus::search
