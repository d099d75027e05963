#pragma once

#include <stdexcept>
#include <string>

namespace gradus {

/// What went wrong, in one word. The program's exit code follows from it: `usage` exits with 2,
/// every other kind with 1.
enum class ErrorKind {
  usage,       ///< A flag, option or argument is wrong; found before any work began.
  data,        ///< A data file or an example cannot be used.
  model,       ///< A model folder, weight file or model output cannot be used.
  checkpoint,  ///< A checkpoint cannot be written, or training cannot resume from it.
  io,          ///< The operating system refused to read or write.
  training,    ///< A training step failed.
  internal,    ///< A bug in gradus.
};

/// The exception that the library throws.
///
/// `what()` is complete and ready to print:
///
///     gradus: cannot read a.idx: 12 bytes, expected at least 16 [G-DATA-3]
///       The file is cut short. Fetch it again.
///
/// Ids are stable, so a program may compare them. docs/user/errors.md has a paragraph for each.
/// LibTorch's own errors (`c10::Error`) pass through unchanged.
class Error : public std::runtime_error {
 public:
  /// `message` says what happened, where, what was expected and what was received. `advice` says
  /// what to do about it; it may have several lines, or be empty.
  Error(std::string id, ErrorKind kind, std::string message, std::string advice = {});

  /// The stable id, for example "G-DATA-3".
  const std::string& id() const { return id_; }
  /// The kind, which decides the exit code.
  ErrorKind kind() const { return kind_; }
  /// The message alone, without id and advice.
  const std::string& message() const { return message_; }
  /// The advice alone; empty when there is none.
  const std::string& advice() const { return advice_; }

 private:
  std::string id_;
  ErrorKind kind_;
  std::string message_;
  std::string advice_;
};

}  // namespace gradus
