#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/engine/run_checkpoint.h>
#include <gradus/formats/torch_file.h>

#include "core/mapped_reads.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

// Reads a file as JSON and gives it to `load`; empty where that is.
std::function<void(const fs::path&)> json_loader(std::function<void(const nlohmann::json&)> load) {
  if (!load) return {};
  return [load = std::move(load)](const fs::path& path) {
    try {
      load(read_json(path));
    } catch (const nlohmann::json::exception& error) {
      throw Error("G-CKPT-5", ErrorKind::checkpoint,
                  path.string() + " lacks something a resume needs: " + error.what(),
                  "It was written by another version of gradus, or is damaged.");
    }
  };
}

}  // namespace

void RunCheckpoint::add(std::string file, Part<StateTree> part) {
  auto save = [file, state = std::move(part.state)](SnapshotBuffers& buffers, Snapshot& snapshot) {
    if (const auto tree = state())
      snapshot.files.push_back(torch_file_writer(file, buffers.copy(*tree)));
  };
  std::function<void(const fs::path&)> load;
  if (part.load)
    load = [load = std::move(part.load)](const fs::path& path) {
      read_mapped([&] { load(read_torch_file(path)); });
    };
  entries_.push_back({std::move(file), std::move(save), std::move(load)});
}

void RunCheckpoint::add(std::string file, Part<nlohmann::json> part) {
  auto save = [file, state = std::move(part.state)](SnapshotBuffers&, Snapshot& snapshot) {
    if (const auto json = state())
      snapshot.files.push_back(text_file_writer(file, dump_json(*json, 2) + "\n"));
  };
  entries_.push_back({std::move(file), std::move(save), json_loader(std::move(part.load))});
}

void RunCheckpoint::add(std::string file, TextPart part) {
  auto save = [file, text = std::move(part.text)](SnapshotBuffers&, Snapshot& snapshot) {
    snapshot.files.push_back(text_file_writer(file, text()));
  };
  entries_.push_back({std::move(file), std::move(save), json_loader(std::move(part.load))});
}

void RunCheckpoint::add(FilesPart part) { entries_.push_back({{}, std::move(part), {}}); }

void RunCheckpoint::add(std::string file, FilesPart part,
                        std::function<void(const fs::path&)> load) {
  entries_.push_back({std::move(file), std::move(part), std::move(load)});
}

void RunCheckpoint::save(const Target& target) {
  writer_.wait();  // the buffers of the save before are used again
  auto& buffers = writer_.buffers();
  buffers.begin();
  Snapshot snapshot;
  for (const auto& entry : entries_) entry.save(buffers, snapshot);
  writer_.start({.run_dir = target.run_dir,
                 .step = target.step,
                 .snapshot = std::move(snapshot),
                 .rotation = target.rotation,
                 .best = target.best,
                 .if_it_fails = target.if_it_fails,
                 .folder = target.folder});
}

std::vector<std::string> RunCheckpoint::restore(const fs::path& checkpoint) const {
  std::vector<std::string> missing;
  for (const auto& entry : entries_) {
    if (!entry.load) continue;
    if (const auto path = checkpoint / entry.file; fs::exists(path))
      entry.load(path);
    else
      missing.push_back(entry.file);
  }
  return missing;
}

}  // namespace gradus
