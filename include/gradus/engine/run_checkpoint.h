#pragma once

#include <gradus/checkpoint/checkpoint_writer.h>
#include <gradus/core/state_tree.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace gradus {

/// The named parts of a run that a checkpoint keeps: saves them all, restores them all.
///
/// A part is anything with `state()` and `load(state)`. A state that is a `StateTree` becomes a
/// torch file, JSON becomes a text file; the part's name is the name of its file. RunCheckpoint
/// knows nothing else of a part.
///
/// ```
/// RunCheckpoint checkpoint(writer);
/// checkpoint.add("optimizer.pt", optimizer_part);
/// checkpoint.add("counters.json", counters);
/// checkpoint.save({.run_dir = "runs/a", .step = 500});  // runs/a/checkpoint-500
/// checkpoint.restore("runs/a/checkpoint-500");
/// ```
///
/// Ownership: refers to the writer and to the parts, which must outlive it. Thread-safety: use it
/// from the training thread; the files are written by the writer's own.
class RunCheckpoint {
 public:
  /// A part as two functions, for what has no `state()` and `load()` of its own.
  template <class State>
  struct Part {
    std::function<std::optional<State>()> state;  ///< nothing: no file this time
    std::function<void(const State&)> load;       ///< empty: written only
  };
  /// A part whose state is a text that grows, such as a log. It is written as it stands, and parsed
  /// as JSON when it is restored.
  struct TextPart {
    std::function<TextPieces()> text;                 ///< what the file holds now
    std::function<void(const nlohmann::json&)> load;  ///< empty: written only
  };
  /// A part with files in a form of its own, such as a model's weights. It adds them to the
  /// snapshot; tensors are copied into the buffers first.
  using FilesPart = std::function<void(SnapshotBuffers& buffers, Snapshot& snapshot)>;

  /// Saves through `writer`, which must outlive the object.
  explicit RunCheckpoint(CheckpointWriter& writer) : writer_(writer) {}

  /// Adds a part. Parts are saved and restored in the order they are added.
  void add(std::string file, Part<StateTree> part);
  /// A part that is a JSON file.
  void add(std::string file, Part<nlohmann::json> part);
  /// A part that is a JSON file, made piece by piece.
  void add(std::string file, TextPart part);
  /// A part that writes files of its own.
  void add(FilesPart part);
  /// The same with a function that restores it, which is called with the path of `file` where that
  /// exists.
  void add(std::string file, FilesPart part,
           std::function<void(const std::filesystem::path& file)> load);
  /// A part with `state()` and `load()`.
  template <class P>
    requires requires(P& part) { part.load(part.state()); }
  void add(std::string file, P& part) {
    using State = std::remove_cvref_t<decltype(part.state())>;
    add(std::move(file), Part<State>{[&part] { return std::optional<State>(part.state()); },
                                     [&part](const State& state) { part.load(state); }});
  }

  /// Where a checkpoint goes, and which others stay.
  struct Target {
    /// The folder of the run.
    std::filesystem::path run_dir;
    /// The step of the checkpoint.
    int64_t step = 0;
    /// Which older checkpoints are deleted.
    RotationPolicy rotation{std::nullopt};
    std::optional<std::filesystem::path> best = std::nullopt;  ///< never rotated away
    std::string if_it_fails = {};  ///< what a failure means; ends the warning about it
    /// The folder to write to, which other processes write to as well; null: a new one.
    std::shared_ptr<StagedFolder> folder = nullptr;
  };

  /// Copies the state of every part now and writes `run_dir/checkpoint-STEP` in the background.
  /// Waits for the save before, and throws what went wrong with it (`Error` G-CKPT-6) unless
  /// `CheckpointWriter::take_outcome` has given that. A failure of this save is an outcome, too.
  void save(const Target& target);
  /// Returns when every save is on disk; throws what went wrong with one.
  void wait() { writer_.wait(); }

  /// Gives every part its state from a folder. Returns the names of files that are not there: their
  /// parts stay as they are. Throws `Error` G-CKPT-5 when a part misses a key in its JSON, and what
  /// the reader of a file or a part throws.
  std::vector<std::string> restore(const std::filesystem::path& checkpoint) const;

 private:
  struct Entry {
    std::string file;  ///< empty for files in a form of their own
    FilesPart save;
    std::function<void(const std::filesystem::path& file)> load;
  };

  CheckpointWriter& writer_;
  std::vector<Entry> entries_;
};

}  // namespace gradus
