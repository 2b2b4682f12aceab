// An HTTP/1.1 server. One thread holds thousands of connections, each with a deadline for whatever
// it waits for. All memory that a client can occupy is bounded. Answers come from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "http/message.h"

namespace sluice::serve {

// The content type of pages for Prometheus.
inline constexpr const char* kMetricsType = "text/plain; version=0.0.4";

struct HttpLimits {
  int64_t connections = 8192;  // in all; beyond them the one without a request for the longest time is closed
  int64_t connections_per_client = 4096;      // beyond them: 503
  int64_t header_bytes = 32768;               // beyond them: 431
  int64_t body_bytes = int64_t{16} << 20;     // beyond them: 413
  int64_t bodies_bytes = int64_t{256} << 20;  // all bodies at once; beyond them: 503
  double header_s =
      10;  // from a request's first byte (at first: the connection's begin) to the end of its head
  double body_s = 60;   // from the end of the head to the end of the body
  double idle_s = 60;   // between requests
  double write_s = 30;  // for a client that reads nothing of its answer
};

struct Response {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> fields = {};
};

struct HttpRequest {
  http::Head head;
  std::string body;
  std::string client;          // its address; for IPv6 the network
  std::shared_ptr<void> held;  // counts its bytes among all bodies' while it exists
};

// One request's answer. Thread-safe; pieces sent after the client has left are dropped.
class Reply {
 public:
  virtual ~Reply() = default;
  virtual void send(Response response) = 0;
  // Alternatively piece by piece: begin(), any number of write(), end().
  virtual void begin(std::string content_type) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end() = 0;

  virtual bool gone() const = 0;        // the client has left
  virtual int64_t backlog() const = 0;  // bytes that the client has not read yet
  // Called on the server's thread when the client has left, or has read everything so far.
  virtual void on_change(std::function<void()> changed) = 0;
};

// The code that answers requests. Called on the server's thread, so calls must return quickly.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  struct Admission {
    std::optional<Response> refusal;  // sent instead of an answer, before the body is read
    int64_t body_bytes = 0;           // limit of this request's body
  };
  virtual Admission admit(const http::Head& head) = 0;
  virtual void handle(HttpRequest request, std::shared_ptr<Reply> reply) = 0;
  // The body of a response that the server gives by itself.
  virtual Response refusal(int status, const std::string& message) const = 0;
};

struct HttpFigures {
  int64_t connections = 0;  // now
  int64_t accepted = 0;
  int64_t refused = 0;  // connections beyond a limit
  int64_t late = 0;     // connections that were closed at a deadline
  int64_t faults = 0;   // messages that were not valid requests
};

class HttpServer {
 public:
  // Listens at `host`, a name or an address. The handler must outlive
  // the server. std::exception if the address is not available.
  HttpServer(const std::string& host, int port, const HttpLimits& limits, HttpHandler& handler);
  ~HttpServer();

  int port() const;
  // Serves on the caller's thread, until stop().
  void run();
  // From any thread: accepts no new connection, and closes each after the answer that it waits for.
  void drain();
  // From any thread, also before run().
  void stop();
  // From any thread: calls `action` on the server's thread.
  void post(std::function<void()> action);
  // From any thread.
  HttpFigures figures() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace sluice::serve
