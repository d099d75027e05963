#include <gradus/checkpoint/manifest.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/formats/weights_folder.h>

#include <algorithm>
#include <charconv>

#include "core/list_folder.h"
#include "formats/file_check.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

constexpr int kVersion = 1;

std::string with_commas(uint64_t value) {
  auto text = std::to_string(value);
  for (int i = int(text.size()) - 3; i > 0; i -= 3) text.insert(size_t(i), ",");
  return text;
}

Error not_a_manifest(const fs::path& file, const std::string& why) {
  return {"G-CKPT-2", ErrorKind::checkpoint,
          file.string() + " is not a manifest that this version reads: " + why,
          "The checkpoint is damaged or was written by a newer gradus."};
}

void check_without_manifest(const fs::path& directory, CheckpointReport& report) {
  const bool is_adapter = fs::exists(directory / "adapter_model.safetensors");
  if (const auto problem = is_adapter ? std::nullopt : weights_problem(directory))
    report.problems.push_back(*problem);
  if (fs::exists(directory / "checkpoint-is-incomplete.txt"))
    report.problems.push_back("checkpoint-is-incomplete.txt says that its save was cut short");
  if (!fs::exists(directory / "trainer_state.json"))
    report.problems.push_back("trainer_state.json is missing");
  for (const auto& file : list_folder(directory))
    if (const auto problem = file_problem(file))
      report.problems.push_back(file.filename().string() + ": " + *problem);
}

}  // namespace

std::string Manifest::to_text() const {
  nlohmann::json files_json = nlohmann::json::object();
  for (const auto& [name, file] : files)
    files_json[name] = {{"size", file.size}, {"checksum", checksum_text(file.checksum)}};
  return dump_json(
             nlohmann::json{
                 {"format", "gradus-checkpoint"}, {"version", kVersion}, {"files", files_json}},
             2) +
         "\n";
}

Manifest Manifest::read(const fs::path& file) {
  const auto json = read_json(file);
  if (!json.is_object() || json.value("format", nlohmann::json()) != "gradus-checkpoint" ||
      !json.contains("files") || !json["files"].is_object())
    throw not_a_manifest(file,
                         "expected an object with \"format\": \"gradus-checkpoint\" and \"files\"");
  if (!json.contains("version") || !json["version"].is_number_integer() ||
      json["version"].get<int64_t>() > kVersion)
    throw not_a_manifest(file, "its version is not " + std::to_string(kVersion) + " or below");
  if (json["files"].empty()) throw not_a_manifest(file, "it names no files");
  Manifest manifest;
  for (const auto& [name, entry] : json["files"].items()) {
    const auto checksum =
        entry.is_object() && entry.contains("checksum") && entry["checksum"].is_string()
            ? entry["checksum"].get<std::string>()
            : "";
    if (!checksum.starts_with("crc32:") || !entry.contains("size") ||
        !entry["size"].is_number_unsigned() || name.find('/') != std::string::npos)
      throw not_a_manifest(file, "the entry of " + name + " has no size and checksum");
    WrittenFile written{entry["size"].get<uint64_t>(), 0};
    const auto* end = checksum.data() + checksum.size();
    const auto parsed = std::from_chars(checksum.data() + 6, end, written.checksum, 16);
    if (parsed.ec != std::errc() || parsed.ptr != end)
      throw not_a_manifest(file, "the checksum of " + name + " is not a number");
    manifest.files[name] = written;
  }
  return manifest;
}

CheckpointReport verify_checkpoint(const fs::path& directory, Verify depth) {
  CheckpointReport report;
  if (!fs::is_directory(directory)) {
    report.problems.push_back("there is no such folder");
    return report;
  }
  const auto manifest_file = directory / "manifest.json";
  report.has_manifest = fs::exists(manifest_file);
  if (!report.has_manifest) {
    // One of ours has these two and a manifest: without it the folder was tampered with.
    if (fs::exists(directory / "gradus_state.json"))
      report.problems.push_back("manifest.json is missing");
    check_without_manifest(directory, report);
    return report;
  }
  try {
    report.files = Manifest::read(manifest_file).files;
  } catch (const Error& error) {
    report.problems.push_back(error.message());
    return report;
  }
  for (const auto& [name, expected] : report.files) {
    std::error_code code;
    const auto size = fs::file_size(directory / name, code);
    if (code) {
      report.problems.push_back(name + " is missing");
    } else if (size != expected.size) {
      report.problems.push_back(name + " is " + with_commas(size) + " bytes, manifest.json says " +
                                with_commas(expected.size));
    } else if (depth == Verify::full) {
      try {
        const auto found = file_checksum(directory / name);
        if (found != expected)
          report.problems.push_back(name + " has checksum " + checksum_text(found.checksum) +
                                    ", manifest.json says " + checksum_text(expected.checksum));
      } catch (const Error& error) {
        report.problems.push_back(name + ": " + error.message());
      }
    }
  }
  return report;
}

}  // namespace gradus
