#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/optim/optim_args.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace gradus {

OptimArgs::OptimArgs(std::string optimizer, const std::string& text,
                     const std::vector<OptimSetting>& known)
    : optimizer_(std::move(optimizer)) {
  for (const auto& setting : known) known_.push_back(setting.name);
  std::string part;
  const auto take = [&] {
    const auto equals = part.find('=');
    if (equals == std::string::npos || equals == 0 ||
        part.find('=', equals + 1) != std::string::npos)
      refuse("expected key=value pairs with commas between, received '" + part + "'",
             "For example --optim_args momentum=0.9,nesterov=true.");
    values_[part.substr(0, equals)] = part.substr(equals + 1);
    part.clear();
  };
  for (const char c : text) {
    if (c == ' ') continue;
    if (c != ',')
      part += c;
    else
      take();
  }
  if (!part.empty() || !values_.empty()) take();
  for (const auto& [key, value] : values_) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    std::string listed;
    for (const auto& name : known_) listed += (listed.empty() ? "" : ", ") + name;
    refuse(
        "there is no '" + key + "'; " + (known_.empty() ? "it takes none" : "it takes " + listed),
        did_you_mean(key, known_));
  }
}

std::optional<std::string> OptimArgs::text(const std::string& name) const {
  if (std::find(known_.begin(), known_.end(), name) == known_.end())
    throw Error("G-OPTIM-9", ErrorKind::internal,
                "the optimizer " + optimizer_ + " reads '" + name + "' of optim_args, " +
                    "which its entry does not list",
                "Add it to OptimizerEntry::optim_args.");
  const auto found = values_.find(name);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

void OptimArgs::read(const std::string& name, double& value) const {
  const auto given = text(name);
  if (!given) return;
  const char* end = given->data() + given->size();
  const auto [stop, error] = std::from_chars(given->data(), end, value);
  if (error != std::errc() || stop != end)
    refuse("'" + name + "' must be a number, received '" + *given + "'");
}

void OptimArgs::read(const std::string& name, int64_t& value) const {
  double number = double(value);
  read(name, number);
  if (number != std::floor(number))
    refuse("'" + name + "' must be a whole number, received '" + *text(name) + "'");
  value = int64_t(number);
}

void OptimArgs::read(const std::string& name, bool& value) const {
  const auto given = text(name);
  if (!given) return;
  auto lower = *given;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  const bool yes = lower == "true" || lower == "1" || lower == "yes";
  if (!yes && lower != "false" && lower != "0" && lower != "no")
    refuse("'" + name + "' must be true or false, received '" + *given + "'");
  value = yes;
}

void OptimArgs::refuse(const std::string& what, const std::string& advice) const {
  throw Error("G-OPTIM-7", ErrorKind::usage, "optim_args of " + optimizer_ + ": " + what, advice);
}

}  // namespace gradus
