#pragma once

#include <gradus/search/sampler.h>

namespace gradus::search {

/// A space written down: the distribution of each parameter, by name.
///
///     {"learning_rate": {"low": 1e-6, "high": 1e-3, "log": true},    a real number
///      "num_train_epochs": {"low": 1, "high": 5},                    an integer, for two integers
///      "weight_decay": {"low": 0, "high": 0.3, "step": 0.05},
///      "per_device_train_batch_size": [8, 16, 32],                   one of a list
///      "optim": {"choices": ["adamw_torch", "adafactor"]},           the same
///      "seed": 7}                                                    one value
///
/// `"type": "float"` makes a real number of two integers. Throws `Error` G-SEARCH-1 for anything
/// else, with the parameter's name.
std::map<std::string, Distribution> parse_space(const nlohmann::json& space);

/// All values of every parameter, for `GridSampler`. Throws `Error` G-SEARCH-1 for a parameter
/// whose values cannot be counted.
GridSampler::Grid grid_of(const std::map<std::string, Distribution>& space);

}  // namespace gradus::search
