#pragma once

#include <stdexcept>
#include <string>

namespace gradus {

/// What kind of thing went wrong; decides the exit code of the program.
enum class ErrorKind {
  usage,       ///< a flag, option or argument is wrong; found before any work began (exit code 2)
  data,        ///< a data file or an example cannot be used
  model,       ///< a model folder, weight file or output cannot be used
  checkpoint,  ///< a checkpoint cannot be written or resumed from
  io,          ///< the operating system refused to read or write
  training,    ///< a step of the run could not be done
  internal,    ///< a bug of ours
};

/// The one exception type the library throws.
///
/// `what()` is complete and ready to print:
///
///     gradus: cannot read a.idx: 12 bytes, expected at least 16 [G-DATA-3]
///       The file is cut short. Fetch it again.
///
/// Ids are stable; docs/user/errors.md has a paragraph for each.
class Error : public std::runtime_error {
 public:
  /// `message` says what, where, expected and received; `advice` says what to do (may span lines).
  Error(std::string id, ErrorKind kind, std::string message, std::string advice = {});

  const std::string& id() const { return id_; }
  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return message_; }
  const std::string& advice() const { return advice_; }

 private:
  std::string id_;
  ErrorKind kind_;
  std::string message_;
  std::string advice_;
};

}  // namespace gradus
