#include "trackers/text_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>

namespace gradus {
namespace {

constexpr size_t kLongestRequest = 8192;
constexpr std::chrono::milliseconds kPatience{2000};

/// Waits until the socket can be read or written; false when the time is up.
bool wait_for(int socket, short what, std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  pollfd entry{socket, what, 0};
  return left.count() > 0 && ::poll(&entry, 1, int(left.count())) == 1;
}

/// Whether the request names this machine by a number or as localhost, or not at all. A page of
/// another site may send a browser here under a name of its own: DNS rebinding.
bool names_this_machine(std::string request) {
  std::transform(request.begin(), request.end(), request.begin(),
                 [](unsigned char letter) { return char(std::tolower(letter)); });
  constexpr std::string_view kHeader = "\r\nhost:";
  const auto at = request.find(kHeader);
  if (at == std::string::npos) return true;
  auto host = request.substr(at + kHeader.size());
  host.resize(std::min(host.find("\r\n"), host.size()));
  host.erase(0, host.find_first_not_of(' '));
  if (host.starts_with('[')) return true;
  host.resize(std::min(host.find(':'), host.size()));
  return host == "localhost" || host.find_first_not_of("0123456789.") == std::string::npos;
}

}  // namespace

TextServer::TextServer(int port, std::string path, std::string content_type,
                       std::function<std::string()> text)
    : path_(std::move(path)), content_type_(std::move(content_type)), text_(std::move(text)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  if (listener_ < 0 || ::bind(listener_, generic, size) != 0 || ::listen(listener_, 16) != 0 ||
      ::getsockname(listener_, generic, &size) != 0) {
    const auto reason = system_reason(errno);
    if (listener_ >= 0) ::close(listener_);
    throw Error("G-TRACK-2", ErrorKind::io,
                fmt::format("cannot listen on 127.0.0.1:{}: {}", port, reason));
  }
  port_ = ntohs(address.sin_port);
  stop_ = ::eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this] { serve(); });
}

TextServer::~TextServer() {
  const uint64_t one = 1;
  if (::write(stop_, &one, sizeof one) == sizeof one && thread_.joinable()) thread_.join();
  ::close(listener_);
  ::close(stop_);
}

void TextServer::serve() {
  for (;;) {
    pollfd entries[] = {{listener_, POLLIN, 0}, {stop_, POLLIN, 0}};
    if (::poll(entries, 2, -1) < 0 && errno != EINTR) return;
    if (entries[1].revents != 0) return;
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) {
      // Without free descriptors the client would be found waiting again at once.
      if (errno == EMFILE || errno == ENFILE) ::poll(&entries[1], 1, 100);
      continue;
    }
    answer(connection);
    ::close(connection);
  }
}

void TextServer::answer(int connection) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  std::string request;
  while (request.find("\r\n\r\n") == std::string::npos) {
    char bytes[1024];
    if (request.size() > kLongestRequest || !wait_for(connection, POLLIN, deadline)) return;
    const auto count = ::recv(connection, bytes, sizeof bytes, 0);
    if (count <= 0) return;
    request.append(bytes, size_t(count));
  }
  const auto line = request.substr(0, request.find("\r\n"));
  std::string status = "200 OK", body;
  if (!line.starts_with("GET ")) {
    status = "405 Method Not Allowed";
  } else if (!names_this_machine(request)) {
    status = "421 Misdirected Request";
  } else {
    const auto wanted = line.substr(4, line.find_first_of(" ?", 4) - 4);
    if (wanted == path_)
      body = text_();
    else
      status = "404 Not Found";
  }
  std::string answer = fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, content_type_, body.size(), body);
  for (size_t sent = 0; sent < answer.size();) {
    if (!wait_for(connection, POLLOUT, deadline)) return;
    const auto count = ::send(connection, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return;
    sent += size_t(count);
  }
  ::shutdown(connection, SHUT_WR);
}

}  // namespace gradus
