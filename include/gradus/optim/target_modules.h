#pragma once

#include <string>
#include <vector>

namespace gradus {

/// `--optim_target_modules`: the linear layers whose gradients GaLore and APOLLO project.
struct TargetModules {
  /// Names or parts of names of modules, or expressions that match whole names; or one expression.
  std::vector<std::string> names;
  /// Whether one text was given rather than a list: an expression that matches whole names, or
  /// "all-linear".
  bool is_single = false;

  /// Whether the linear layer of this name is one of them. Expressions are those of ECMAScript;
  /// throws `Error` G-OPTIM-10 for one that is not valid.
  bool contains(const std::string& module) const;
};

}  // namespace gradus
