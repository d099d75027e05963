#pragma once

#include <gradus/models/pretrained_model.h>

#include <filesystem>
#include <string>

namespace gradus {

/// Warns about what did not fit, in the table transformers prints; throws `Error` G-MODEL-8 where
/// `options` say so.
void tell_load_report(const LoadReport& report, const std::string& class_name,
                      const std::filesystem::path& directory, const PretrainedOptions& options);

/// Names that differ only in numbers as one: "h.0.ln.weight", "h.1.ln.weight" -> "h.{0,
/// 1}.ln.weight".
std::vector<std::string> merge_numbered_names(const std::vector<std::string>& names);

}  // namespace gradus
