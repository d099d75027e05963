#include "data/sources/unnamed_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "core/file_errors.h"

namespace gradus::sources {

int open_unnamed_file(const std::filesystem::path& folder) {
  const auto where = folder.empty() ? std::filesystem::temp_directory_path() : folder;
  int descriptor = ::open(where.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) {  // file systems without O_TMPFILE
    auto name = (where / "gradus-XXXXXX").string();
    descriptor = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor < 0) throw cannot_write(where, errno);
    ::unlink(name.c_str());
  }
  return descriptor;
}

}  // namespace gradus::sources
