#include "models/exported/step_files.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/formats/checksum.h>
#include <gradus/models/config_reader.h>

#include <algorithm>

#include "core/mapped_file.h"
#include "core/mapped_reads.h"
#include "formats/zip.h"

namespace gradus {

namespace fs = std::filesystem;

void refuse_step_file(const fs::path& file, const std::string& what,
                      const ExportManifest& manifest) {
  throw Error("G-EXPORT-2", ErrorKind::model,
              fmt::format("cannot use the compiled step {}: {}", file.string(), what),
              "Fetch the folder again, completely, or export the model again:\n" +
                  manifest.command_with(""));
}

void check_step_file(const fs::path& file, const ExportManifest::Step& step,
                     const ExportManifest& manifest) {
  std::error_code problem;
  const auto size = fs::file_size(file, problem);
  if (problem) refuse_step_file(file, problem.message(), manifest);
  if (size != step.bytes)
    refuse_step_file(file, fmt::format("it has {} bytes, exported.json says {}", size, step.bytes),
                     manifest);
  if (checksum_text(file_checksum(file).checksum) != step.checksum)
    refuse_step_file(file, "its checksum is not that of exported.json", manifest);
}

void check_package_archive(const fs::path& file, const ExportManifest& manifest) {
  std::vector<std::string> names;
  try {
    read_mapped([&] {
      const MappedFile mapped(file);
      names = ZipDirectory(mapped).paths();
    });
  } catch (const Error& error) {
    refuse_step_file(file, error.message(), manifest);
  }
  for (const auto& name : names) {
    const fs::path path(name);
    const bool climbs = std::find(path.begin(), path.end(), "..") != path.end();
    if (path.is_absolute() || climbs || name.find('\\') != std::string::npos ||
        name.find('\0') != std::string::npos)
      refuse_step_file(file, "its entry '" + name + "' would be written outside of its folder",
                       manifest);
  }
}

// What a task with the CTC loss takes from its data and options, and a compiled step cannot change.
constexpr const char* kCompiledSettings[] = {"vocab_size", "pad_token_id", "ctc_loss_reduction",
                                             "ctc_zero_infinity"};

void check_config_changes(const fs::path& folder, const nlohmann::json& config,
                          const nlohmann::json& changes, const ExportManifest& manifest) {
  for (const auto* name : kCompiledSettings) {
    if (manifest.task != "ctc") break;
    const auto wanted = changes.find(name), exported = config.find(name);
    if (wanted == changes.end() || exported == config.end() || *wanted == *exported) continue;
    throw Error("G-EXPORT-5", ErrorKind::model,
                fmt::format("{} is {} here, but {} was exported with {}", name, wanted->dump(),
                            folder.string(), exported->dump()),
                "Give the data and the options that it was exported for, or set it in config.json "
                "before the export:\n" +
                    manifest.command_with(""));
  }
  if (!changes.contains("num_labels")) return;
  const auto wanted = num_labels(changes), exported = num_labels(config);
  if (wanted == exported) return;
  throw Error("G-EXPORT-5", ErrorKind::model,
              fmt::format("the data has {} labels, but {} was exported with {}", wanted,
                          folder.string(), exported),
              "Export the model for this number of labels:\n" +
                  manifest.command_with(fmt::format("--num_labels {}", wanted)));
}

void save_steps(const fs::path& from, const fs::path& to, const std::string& file,
                const ExportManifest& manifest) {
  write_file_atomically(to / file, dump_json(manifest.text, 1) + "\n");
  for (const auto& package : manifest.packages)
    for (const auto* step : {&package.train, &package.forward}) {
      if (!*step) continue;
      const auto source = from / (*step)->file, target = to / (*step)->file;
      std::error_code problem;
      if (fs::equivalent(source, target, problem)) continue;
      fs::remove(target, problem);
      fs::create_hard_link(source, target, problem);  // they never change: one copy is enough
      if (!problem) continue;
      problem.clear();
      fs::copy_file(source, target, fs::copy_options::overwrite_existing, problem);
      if (problem)
        throw Error("G-IO-2", ErrorKind::io,
                    fmt::format("cannot copy {} to {}: {}", source.string(), target.string(),
                                problem.message()),
                    "The steps of an exported model are copied from the folder that it was loaded "
                    "from, which must stay in its place.");
      sync_path(target);
    }
}

}  // namespace gradus
