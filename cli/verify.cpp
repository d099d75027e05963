#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/checkpoint/checkpoint_dir.h>
#include <gradus/checkpoint/manifest.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>

#include "cli.h"

namespace gradus::cli {
namespace {

namespace fs = std::filesystem;

nlohmann::ordered_json report_on(const fs::path& directory) {
  const auto report = verify_checkpoint(directory, Verify::full);
  return {{"path", directory.string()},
          {"complete", report.complete()},
          {"written_by", report.has_manifest ? "gradus" : "transformers"},
          {"files", report.files.size()},
          {"problems", report.problems}};
}

bool is_checkpoint(const fs::path& directory) {
  return fs::exists(directory / "manifest.json") ||
         (fs::exists(directory / "trainer_state.json") && list_checkpoints(directory).empty());
}

}  // namespace

int verify(Words words) {
  std::vector<std::string> rest(words.begin(), words.end());
  const bool json = take_json_flag(rest);
  if (rest.size() != 1 || rest[0].starts_with("-")) {
    const bool help = !rest.empty() && (rest[0] == "--help" || rest[0] == "-h");
    if (!help)
      throw Error("G-CLI-4", ErrorKind::usage,
                  fmt::format("gradus verify takes one folder, received {}",
                              rest.size() == 1 ? "'" + rest[0] + "'" : std::to_string(rest.size())),
                  "usage: gradus verify DIR [--json]");
    print_line(
        "usage: gradus verify DIR [--json]\n\nDIR is a checkpoint or a run folder. Says what is "
        "complete, what is damaged, and which checkpoint a resume would take.\nExit code 0: "
        "everything is complete; 1: something is not.");
    return 0;
  }
  const fs::path directory = rest[0];
  if (!fs::is_directory(directory))
    throw Error("G-CLI-5", ErrorKind::usage, directory.string() + ": there is no such folder",
                "Name a checkpoint or a run folder.");
  nlohmann::ordered_json document = {{"path", directory.string()},
                                     {"checkpoints", nlohmann::ordered_json::array()},
                                     {"resume_takes", nullptr}};
  bool good = true;
  const auto add = [&](const fs::path& path) {
    document["checkpoints"].push_back(report_on(path));
    good &= document["checkpoints"].back()["complete"].get<bool>();
  };
  if (is_checkpoint(directory)) {
    add(directory);
  } else {
    for (const auto& each : list_checkpoints(directory)) add(each.path);
    if (const auto newest = newest_complete_checkpoint(directory))
      document["resume_takes"] = newest->path.string();
    if (document["checkpoints"].empty())
      throw Error("G-CLI-5", ErrorKind::checkpoint,
                  directory.string() + " is not a checkpoint and contains none",
                  "Name a folder that training wrote.");
  }
  if (json) {
    print_line(dump_json(document, 2));
    return good ? 0 : 1;
  }
  for (const auto& each : document["checkpoints"]) {
    print_line(fmt::format(
        "{}: {}", each["path"].get<std::string>(),
        each["complete"].get<bool>()
            ? fmt::format("complete (written by {})", each["written_by"].get<std::string>())
            : "DAMAGED"));
    for (const auto& problem : each["problems"]) print_line("  " + problem.get<std::string>());
  }
  if (!is_checkpoint(directory))
    print_line(document["resume_takes"].is_null()
                   ? "No checkpoint can be resumed from."
                   : "A resume would take " + document["resume_takes"].get<std::string>() + ".");
  return good ? 0 : 1;
}

}  // namespace gradus::cli
