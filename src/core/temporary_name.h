#pragma once

#include <string>
#include <string_view>

namespace gradus {

/// A name for what is being written beside its final place: ".tmp-NAME-PID-TOKEN".
///
/// The token is random, so that nobody can put a file or a link there first, and two writers never
/// meet. Its first half is the same for all names of this process. A long NAME is cut short.
/// Thread-safe.
std::string temporary_name(std::string_view name);

/// Whether `file_name` is such a name and the process that chose it is gone: what is there was left
/// behind by a kill. Names of earlier versions (".tmp-checkpoint-5-PID", ".tmp-model") count, too.
bool is_abandoned_temporary(std::string_view file_name);

}  // namespace gradus
