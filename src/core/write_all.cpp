#include "core/write_all.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace gradus {

bool write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const auto n = ::write(fd, content.data(), std::min<size_t>(content.size(), size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      pollfd room{.fd = fd, .events = POLLOUT, .revents = 0};
      if (::poll(&room, 1, -1) > 0 || errno == EINTR) continue;
    }
    if (n == 0) errno = ENOSPC;
    if (n <= 0) return false;
    content.remove_prefix(size_t(n));
  }
  return true;
}

}  // namespace gradus
