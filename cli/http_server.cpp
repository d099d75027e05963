#include "http_server.h"

#include <fmt/format.h>
#include <gradus/core/error.h>

#ifdef GRADUS_WITH_MICROHTTPD

#include <arpa/inet.h>
#include <dlfcn.h>
#include <gradus/core/files.h>
#include <microhttpd.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace gradus::cli {
namespace {

constexpr unsigned kServerThreads = 3;
constexpr unsigned kPatienceSeconds = 15;  // of a silent connection
constexpr size_t kConnectionMemory = size_t(16) << 10;
constexpr size_t kMostWaitingBytes = size_t(256) << 20;  // of answers that are being read
constexpr rlim_t kMostConnections = 12000;

/// The functions of libmicrohttpd that are used. They are looked up when they are first needed, so
/// that only `gradus serve` needs the library.
struct MicroHttpd {
  decltype(&::MHD_start_daemon) start_daemon = nullptr;
  decltype(&::MHD_stop_daemon) stop_daemon = nullptr;
  decltype(&::MHD_get_connection_values) get_connection_values = nullptr;
  decltype(&::MHD_create_response_from_buffer) create_response = nullptr;
  decltype(&::MHD_create_response_from_callback) create_from_callback = nullptr;
  decltype(&::MHD_add_response_header) add_response_header = nullptr;
  decltype(&::MHD_queue_response) queue_response = nullptr;
  decltype(&::MHD_destroy_response) destroy_response = nullptr;
  bool is_complete = false;

  MicroHttpd() {
    void* library = ::dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    is_complete = find(start_daemon, "MHD_start_daemon") && find(stop_daemon, "MHD_stop_daemon") &&
                  find(get_connection_values, "MHD_get_connection_values") &&
                  find(create_response, "MHD_create_response_from_buffer") &&
                  find(create_from_callback, "MHD_create_response_from_callback") &&
                  find(add_response_header, "MHD_add_response_header") &&
                  find(queue_response, "MHD_queue_response") &&
                  find(destroy_response, "MHD_destroy_response");
  }
};

const MicroHttpd& micro_httpd() {
  static const MicroHttpd library;
  return library;
}

/// A socket that listens; throws G-SERVE-3.
int listen_on(const std::string& address, int port, int& chosen) {
  sockaddr_storage place{};
  socklen_t size = 0;
  if (auto* four = reinterpret_cast<sockaddr_in*>(&place);
      ::inet_pton(AF_INET, address.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(uint16_t(port));
    size = sizeof *four;
  } else if (auto* six = reinterpret_cast<sockaddr_in6*>(&place);
             ::inet_pton(AF_INET6, address.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(uint16_t(port));
    size = sizeof *six;
  } else {
    throw Error("G-SERVE-3", ErrorKind::usage,
                fmt::format("--host {}: expected the number of an address, such as 127.0.0.1 or "
                            "0.0.0.0",
                            address),
                "Leave it out to listen on 127.0.0.1.");
  }
  const int socket = ::socket(place.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  if (socket >= 0) ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  auto* generic = reinterpret_cast<sockaddr*>(&place);
  if (socket < 0 || ::bind(socket, generic, size) != 0 || ::listen(socket, 1024) != 0 ||
      ::getsockname(socket, generic, &size) != 0) {
    const auto reason = system_reason(errno);
    if (socket >= 0) ::close(socket);
    throw Error("G-SERVE-3", ErrorKind::io,
                fmt::format("cannot listen on {}:{}: {}", address, port, reason),
                "Choose another --port; 0 takes a free one.");
  }
  chosen = ntohs(place.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&place)->sin_port
                                            : reinterpret_cast<sockaddr_in6*>(&place)->sin6_port);
  return socket;
}

/// As many connections as this process may have open files, up to a limit.
unsigned connection_limit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return 500;
  const auto wanted = kMostConnections + 1000;  // and the files of runs
  if (files.rlim_cur < wanted) {
    files.rlim_cur = std::min<rlim_t>(files.rlim_max, wanted);
    ::setrlimit(RLIMIT_NOFILE, &files);
    ::getrlimit(RLIMIT_NOFILE, &files);
  }
  const auto room = files.rlim_cur > 1400 ? files.rlim_cur - 1000 : files.rlim_cur / 4;
  return unsigned(std::min<rlim_t>(room, kMostConnections));
}

}  // namespace

struct HttpServer::Daemon {
  Handler handler;
  MHD_Daemon* running = nullptr;
  std::atomic<size_t> waiting{0};  // bytes of answers that are being read

  /// The body of an answer on its way.
  struct Body {
    std::string bytes;
    Daemon* daemon;
  };

  static ssize_t read_body(void* body, uint64_t at, char* into, size_t room) {
    const auto& bytes = static_cast<Body*>(body)->bytes;
    const auto count = std::min(room, bytes.size() - size_t(at));
    std::memcpy(into, bytes.data() + at, count);
    return ssize_t(count);
  }
  static void free_body(void* given) {
    const std::unique_ptr<Body> body(static_cast<Body*>(given));
    body->daemon->waiting -= body->bytes.size();
  }

  static MHD_Result keep_query(void* into, MHD_ValueKind, const char* key, const char* value) {
    auto& query = static_cast<HttpRequest*>(into)->query;
    if (query.size() < 32) query.emplace(key, value != nullptr ? value : "");
    return MHD_YES;
  }
  static MHD_Result keep_header(void* into, MHD_ValueKind, const char* key, const char* value) {
    std::string name = key;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char letter) { return char(std::tolower(letter)); });
    static_cast<HttpRequest*>(into)->headers.emplace(name, value != nullptr ? value : "");
    return MHD_YES;
  }

  /// Whether something follows the headers; no request that is answered here has that.
  static bool has_body(MHD_Connection* connection) {
    bool found = false;
    const MHD_KeyValueIterator look = [](void* into, MHD_ValueKind, const char* key,
                                         const char* value) {
      const bool is_length = ::strcasecmp(key, "Content-Length") == 0;
      if ((is_length && (value == nullptr || std::strcmp(value, "0") != 0)) ||
          ::strcasecmp(key, "Transfer-Encoding") == 0)
        *static_cast<bool*>(into) = true;
      return MHD_YES;
    };
    micro_httpd().get_connection_values(connection, MHD_HEADER_KIND, look, &found);
    return found;
  }

  MHD_Result send(MHD_Connection* connection, HttpAnswer answer) {
    const auto& mhd = micro_httpd();
    MHD_Response* response = nullptr;
    if (!answer.lasting.empty() || answer.body.empty()) {
      auto* bytes = const_cast<char*>(answer.lasting.data());
      response = mhd.create_response(answer.lasting.size(), bytes, MHD_RESPMEM_PERSISTENT);
    } else if (waiting + answer.body.size() > kMostWaitingBytes) {
      answer.status = 503;
      response = mhd.create_response(0, nullptr, MHD_RESPMEM_PERSISTENT);
    } else {
      waiting += answer.body.size();
      auto body = std::make_unique<Body>(std::move(answer.body), this);
      const auto size = body->bytes.size();
      response = mhd.create_from_callback(size, size_t(64) << 10, read_body, body.get(), free_body);
      if (response == nullptr)
        waiting -= size;
      else
        body.release();
    }
    if (response == nullptr) return MHD_NO;
    mhd.add_response_header(response, "Content-Type", answer.type.c_str());
    for (const auto& [name, value] : answer.headers)
      mhd.add_response_header(response, name.c_str(), value.c_str());
    const auto result = mhd.queue_response(connection, unsigned(answer.status), response);
    mhd.destroy_response(response);
    return result;
  }

  static MHD_Result answer(void* self, MHD_Connection* connection, const char* url,
                           const char* method, const char*, const char*, size_t*, void** seen) {
    auto& daemon = *static_cast<Daemon*>(self);
    const auto& mhd = micro_httpd();
    if (std::strcmp(method, "GET") != 0 && std::strcmp(method, "HEAD") != 0)
      return daemon.send(connection, {.status = 405, .headers = {{"Allow", "GET, HEAD"}}});
    static int mark = 0;
    if (*seen == nullptr) {  // the headers are there; the rest comes with the next call
      if (has_body(connection))
        return daemon.send(connection, {.status = 413, .headers = {{"Connection", "close"}}});
      *seen = &mark;
      return MHD_YES;
    }
    HttpRequest request{.path = url, .query = {}, .headers = {}};
    mhd.get_connection_values(connection, MHD_GET_ARGUMENT_KIND, keep_query, &request);
    mhd.get_connection_values(connection, MHD_HEADER_KIND, keep_header, &request);
    try {
      return daemon.send(connection, daemon.handler(request));
    } catch (const std::exception&) {
      return daemon.send(connection, {.status = 500});
    }
  }
};

HttpServer::HttpServer(const std::string& address, int port, Handler handler)
    : daemon_(std::make_unique<Daemon>()) {
  const auto& mhd = micro_httpd();
  if (!mhd.is_complete)
    throw Error("G-SERVE-2", ErrorKind::io,
                "gradus serve needs libmicrohttpd (libmicrohttpd.so.12), which is not installed",
                "Install it: apt install libmicrohttpd12, or libmicrohttpd12t64 on newer systems.");
  daemon_->handler = std::move(handler);
  const int socket = listen_on(address, port, port_);
  const auto quiet = [](void*, const char*, va_list) {};
  void (*const logger)(void*, const char*, va_list) = quiet;
  daemon_->running = mhd.start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD, 0, nullptr, nullptr, &Daemon::answer, daemon_.get(),
      MHD_OPTION_EXTERNAL_LOGGER, logger, nullptr, MHD_OPTION_LISTEN_SOCKET, socket,
      MHD_OPTION_CONNECTION_LIMIT, connection_limit(), MHD_OPTION_CONNECTION_TIMEOUT,
      kPatienceSeconds, MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionMemory,
      MHD_OPTION_THREAD_POOL_SIZE, kServerThreads, MHD_OPTION_END);
  if (daemon_->running == nullptr) {
    ::close(socket);
    throw Error("G-SERVE-3", ErrorKind::io,
                fmt::format("libmicrohttpd could not start on {}:{}", address, port_));
  }
}

HttpServer::~HttpServer() {
  if (daemon_->running != nullptr) micro_httpd().stop_daemon(daemon_->running);
}

}  // namespace gradus::cli

#else

namespace gradus::cli {

struct HttpServer::Daemon {};

HttpServer::HttpServer(const std::string&, int, Handler) {
  throw Error("G-SERVE-2", ErrorKind::io,
              "this gradus was built without libmicrohttpd, which `gradus serve` needs",
              "Install libmicrohttpd-dev and build again; `make build` does both.");
}
HttpServer::~HttpServer() = default;

}  // namespace gradus::cli

#endif
