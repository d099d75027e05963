#include <gradus/core/error.h>
#include <gradus/optim/target_modules.h>

#include <algorithm>
#include <regex>

#include "optim/target_groups.h"

namespace gradus {
namespace {

/// libstdc++ tries all ways to match at once with this flag: no expression takes exponential time,
/// and no text deep recursion. Back references are refused.
constexpr auto kPolynomial = std::regex::ECMAScript | std::regex_constants::__polynomial;
constexpr size_t kLongestExpression = 1000;  // they are compiled by recursion

bool matches_whole(const std::string& expression, const std::string& text) {
  if (expression.size() > kLongestExpression)
    throw Error("G-OPTIM-10", ErrorKind::usage,
                "optim_target_modules: an expression of " + std::to_string(expression.size()) +
                    " characters, at most " + std::to_string(kLongestExpression) + " are read",
                "Give names of layers, parts of them, or all-linear.");
  try {
    return std::regex_match(text, std::regex(expression, kPolynomial));
  } catch (const std::regex_error& error) {
    throw Error(
        "G-OPTIM-10", ErrorKind::usage,
        "optim_target_modules: '" + expression + "' is no valid expression: " + error.what());
  }
}

std::string module_of(const std::string& parameter) {
  const auto dot = parameter.rfind('.');
  return dot == std::string::npos ? "" : parameter.substr(0, dot);
}

bool is_linear_weight(const ParamGroupInit& group, size_t i) {
  return group.roles.empty() ? group.params[i].dim() == 2
                             : group.roles[i] == ParamRole::linear_weight;
}

}  // namespace

bool TargetModules::contains(const std::string& module) const {
  if (is_single && (names.front() == "all-linear" || names.front() == "all_linear")) return true;
  const auto is_meant = [&](const std::string& name) {
    return (!is_single && module.find(name) != std::string::npos) || matches_whole(name, module);
  };
  return std::any_of(names.begin(), names.end(), is_meant);
}

std::vector<ParamGroupInit> target_groups(const std::vector<ParamGroupInit>& groups,
                                          const std::optional<TargetModules>& targets,
                                          const std::string& optimizer) {
  if (!targets || targets->names.empty())
    throw Error("G-OPTIM-10", ErrorKind::usage,
                "optim=" + optimizer + " needs optim_target_modules, none were given",
                "Name the linear layers it works on, or all of them: --optim_target_modules "
                "all-linear.");
  std::vector<ParamGroupInit> result(2);
  for (const auto& group : groups) {
    for (size_t i = 0; i < group.params.size(); ++i) {
      const auto module = group.names.empty() ? "" : module_of(group.names[i]);
      const bool is_target = is_linear_weight(group, i) && targets->contains(module);
      auto& into = result[is_target ? kTargetGroup : 0];
      into.params.push_back(group.params[i]);
      if (!group.names.empty()) into.names.push_back(group.names[i]);
      if (!group.roles.empty()) into.roles.push_back(group.roles[i]);
    }
  }
  if (result[kTargetGroup].params.empty())
    throw Error("G-OPTIM-10", ErrorKind::usage,
                "optim=" + optimizer + ": optim_target_modules names no linear layer of the model",
                "Give names of its layers, parts of them, or all-linear.");
  return result;
}

}  // namespace gradus
