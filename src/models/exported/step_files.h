#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/exported/export_manifest.h"

namespace gradus {

/// Throws `Error` G-EXPORT-2 for the file of a step.
[[noreturn]] void refuse_step_file(const std::filesystem::path& file, const std::string& what,
                                   const ExportManifest& manifest);

/// Throws `Error` G-EXPORT-2 when the file of a step is missing or damaged.
void check_step_file(const std::filesystem::path& file, const ExportManifest::Step& step,
                     const ExportManifest& manifest);

/// Throws `Error` G-EXPORT-2 when an archive, which torch unpacks into a folder of its own, has
/// names that lead out of it.
void check_package_archive(const std::filesystem::path& file, const ExportManifest& manifest);

/// Writes the manifest under the name `file`, and all steps beside it. Throws `Error` G-IO-2.
void save_steps(const std::filesystem::path& from, const std::filesystem::path& to,
                const std::string& file, const ExportManifest& manifest);

/// Throws `Error` G-EXPORT-5 when `changes` to the configuration would need other steps.
void check_config_changes(const std::filesystem::path& folder, const nlohmann::json& config,
                          const nlohmann::json& changes, const ExportManifest& manifest);

}  // namespace gradus
