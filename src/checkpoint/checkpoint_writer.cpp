#include <fcntl.h>
#include <gradus/checkpoint/checkpoint_writer.h>
#include <gradus/checkpoint/manifest.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/formats/torch_file.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

namespace gradus {
namespace fs = std::filesystem;
namespace {

// A file-size limit raises SIGXFSZ, which would end the process. Blocked, the write fails with
// EFBIG instead.
class BlockFileSizeSignal {
 public:
  BlockFileSizeSignal() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~BlockFileSizeSignal() {
    // One that is pending for this thread is taken out before it could act.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    const timespec now{};
    while (sigtimedwait(&set, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockFileSizeSignal(const BlockFileSizeSignal&) = delete;
  BlockFileSizeSignal& operator=(const BlockFileSizeSignal&) = delete;

 private:
  sigset_t before_;
};

// Puts `temporary` where `final_name` is in one step, so that a kill leaves the old folder or the
// new one, never none.
void replace_directory(const fs::path& temporary, const fs::path& final_name) {
  std::error_code ignored;
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final_name.c_str(), RENAME_EXCHANGE) ==
      0) {
    sync_path(final_name.parent_path());
    fs::remove_all(temporary, ignored);
    return;
  }
  // A file system that cannot exchange names.
  const fs::path old = temporary.string() + "-replaced-" + std::to_string(::getpid());
  fs::rename(final_name, old);
  publish_directory(temporary, final_name);
  fs::remove_all(old, ignored);
}

void rotate(const CheckpointWriter::Job& job) {
  for (const auto& dir :
       job.rotation.to_delete(list_checkpoints(job.run_dir), job.best, job.step)) {
    log_info("Deleting older checkpoint " + dir.path.string() + " due to save_total_limit");
    remove_checkpoint(dir);
  }
}

}  // namespace

void write_checkpoint(const CheckpointWriter::Job& job, const fs::path& temporary) {
  const BlockFileSizeSignal no_signal;
  const auto& snapshot = job.snapshot;
  Manifest manifest;
  for (const auto& entry : fs::directory_iterator(temporary)) {  // the side files
    manifest.files[entry.path().filename()] = file_checksum(entry.path());
    sync_path(entry.path());
  }
  for (const auto& shard :
       write_safetensors_folder(temporary, snapshot.weights,
                                {.max_shard_size = snapshot.max_shard_size, .sync = Sync::yes}))
    manifest.files[shard.file_name] = shard.written;
  const auto add_tree = [&](const char* name, const std::optional<StateTree>& tree) {
    if (tree) manifest.files[name] = write_torch_file(temporary / name, *tree, Sync::yes);
  };
  add_tree("optimizer.pt", snapshot.optimizer);
  add_tree("scheduler.pt", snapshot.scheduler);
  add_tree("scaler.pt", snapshot.scaler);
  if (snapshot.rng)
    manifest.files["rng_state.pth"] =
        write_rng_state(temporary / "rng_state.pth", *snapshot.rng, Sync::yes);
  for (const auto& [name, text] : snapshot.texts) {
    write_file_atomically(temporary / name, text);
    manifest.files[name] = {text.size(), checksum_of(text.data(), text.size())};
  }
  write_file_atomically(temporary / "manifest.json", manifest.to_text());
  const auto final_name = checkpoint_path(job.run_dir, job.step);
  if (fs::exists(final_name)) {
    // The same step saved again (after a resume, say): the old folder makes way only now that the
    // new one is whole.
    replace_directory(temporary, final_name);
  } else {
    publish_directory(temporary, final_name);
  }
  rotate(job);
}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
  if (!failure_) return;
  try {
    std::rethrow_exception(failure_);
  } catch (const std::exception& error) {
    log_error(error.what());
  } catch (...) {
    log_error("A checkpoint could not be saved.");
  }
}

void CheckpointWriter::start(Job job) {
  wait();
  make_directory(job.run_dir);
  const auto temporary = job.run_dir / (".tmp-checkpoint-" + std::to_string(job.step) + "-" +
                                        std::to_string(::getpid()));
  std::error_code ignored;
  fs::remove_all(temporary, ignored);
  make_directory(temporary);
  try {
    const BlockFileSizeSignal no_signal;
    for (const auto& write : job.snapshot.side_files) write(temporary);
  } catch (...) {
    fs::remove_all(temporary, ignored);
    throw;
  }
  thread_ = std::thread([this, job = std::move(job), temporary] {
    try {
      write_checkpoint(job, temporary);
    } catch (...) {
      failure_ = std::current_exception();
      std::error_code ignored_too;
      fs::remove_all(temporary, ignored_too);
    }
  });
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) thread_.join();
  if (!failure_) return;
  const auto failure = std::exchange(failure_, nullptr);
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    throw Error("G-CKPT-6", ErrorKind::checkpoint,
                "a checkpoint could not be saved: " + error.message(),
                "Earlier checkpoints are unchanged. " + error.advice());
  } catch (const std::exception& error) {
    throw Error("G-CKPT-6", ErrorKind::checkpoint,
                std::string("a checkpoint could not be saved: ") + error.what(),
                "Earlier checkpoints are unchanged.");
  }
}

}  // namespace gradus
