#pragma once

#include <gradus/optim/optimizer.h>
#include <gradus/optim/target_modules.h>

#include <optional>

namespace gradus {

/// The two groups of GaLore and APOLLO in transformers: all other parameters, then the weights of
/// the linear layers that `targets` names. Settings of the given groups are dropped, as there.
/// Parameters without a role count as linear layers if they are matrices. Throws `Error`
/// G-OPTIM-10 when no targets are given or none is found; `optimizer` is for messages.
std::vector<ParamGroupInit> target_groups(const std::vector<ParamGroupInit>& groups,
                                          const std::optional<TargetModules>& targets,
                                          const std::string& optimizer);

/// The group of `target_groups` that has the targets.
inline constexpr size_t kTargetGroup = 1;

}  // namespace gradus
