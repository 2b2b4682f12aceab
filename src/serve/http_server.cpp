#include "serve/http_server.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio.hpp>
#include <ctime>
#include <deque>
#include <list>
#include <unordered_map>

#include "base/text.h"

namespace sluice::serve {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using base::text;
using boost::system::error_code;

constexpr size_t kReadBytes = 16384;  // per read, and limit of what waits behind a request in progress
constexpr double kLeavingS = 0.5;     // from the end of a client's data until it counts as gone
constexpr double kFarewellS = 2;      // for reading the answer to a request that was not read to its end
constexpr double kPauseS = 0.1;       // after a failed accept, for example for lack of descriptors
constexpr int kAcceptedAtOnce = 64;   // then other work gets its turn
constexpr int kSpareFiles = 128;      // descriptors for all but connections

std::chrono::steady_clock::duration seconds(double s) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(s));
}

const char* reason_of(int status) {
  static const std::unordered_map<int, const char*> reasons = {{100, "Continue"},
                                                               {200, "OK"},
                                                               {400, "Bad Request"},
                                                               {401, "Unauthorized"},
                                                               {403, "Forbidden"},
                                                               {404, "Not Found"},
                                                               {405, "Method Not Allowed"},
                                                               {408, "Request Timeout"},
                                                               {413, "Content Too Large"},
                                                               {415, "Unsupported Media Type"},
                                                               {417, "Expectation Failed"},
                                                               {431, "Request Header Fields Too Large"},
                                                               {500, "Internal Server Error"},
                                                               {501, "Not Implemented"},
                                                               {503, "Service Unavailable"},
                                                               {505, "HTTP Version Not Supported"}};
  const auto found = reasons.find(status);
  return found == reasons.end() ? "Status" : found->second;
}

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 64> buffer{};
  const size_t size = std::strftime(buffer.data(), buffer.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return {buffer.data(), size};
}

// A client's IPv6 address changes within its network of 64 bits, so the network identifies the client.
std::string client_of(const tcp::endpoint& endpoint) {
  const asio::ip::address address = endpoint.address();
  if (address.is_v4()) return address.to_string();
  asio::ip::address_v6 v6 = address.to_v6();
  if (v6.is_v4_mapped()) return asio::ip::make_address_v4(asio::ip::v4_mapped, v6).to_string();
  asio::ip::address_v6::bytes_type bytes = v6.to_bytes();
  if (!v6.is_loopback()) std::fill(bytes.begin() + 8, bytes.end(), 0);
  return asio::ip::address_v6(bytes).to_string();
}

// The connections that the process has descriptors for, after its soft limit was raised to the hard one.
int64_t most_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024 - kSpareFiles;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  return std::max<int64_t>(16, static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 30)) - kSpareFiles);
}

}  // namespace

class HttpServer::Impl : public std::enable_shared_from_this<HttpServer::Impl> {
 public:
  class Connection;
  class Answer;

  Impl(const HttpLimits& limits, HttpHandler& handler) : limits_(limits), handler_(handler) {
    limits_.connections = std::min(limits_.connections, most_files());
  }

  void listen(const std::string& host, int port) {
    tcp::resolver resolver(io_);
    const tcp::endpoint endpoint =
        *resolver.resolve(host, std::to_string(port), tcp::resolver::passive | tcp::resolver::numeric_service)
             .begin();
    protocol_ = endpoint.protocol();
    acceptor_.open(protocol_);
    ::fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
    acceptor_.native_non_blocking(true);
    acceptor_.set_option(tcp::acceptor::reuse_address(true));
    acceptor_.bind(endpoint);
    acceptor_.listen(SOMAXCONN);
    port_ = acceptor_.local_endpoint().port();
  }

  void accept() {
    acceptor_.async_wait(tcp::acceptor::wait_read, [self = shared_from_this()](error_code error) {
      if (!error && self->acceptor_.is_open()) self->accept_those_there();
    });
  }

  void stop_accepting() {
    draining_ = true;
    error_code ignored;
    acceptor_.close(ignored);
  }

  void drain();

  // Sockets close on exec: otherwise a connection would live on in a tokenizer's process.
  void accept_those_there() {
    for (int i = 0; i < kAcceptedAtOnce; ++i) {
      const int socket = ::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      const bool none_left = socket < 0 && errno == EAGAIN;
      const bool has_left = socket < 0 && (errno == ECONNABORTED || errno == EINTR || errno == EPROTO);
      if (none_left) break;
      if (has_left) continue;
      if (socket < 0) return accept_later();
      take(tcp::socket(io_, protocol_, socket));
    }
    accept();
  }
  void accept_later() {
    pause_.expires_after(seconds(kPauseS));
    pause_.async_wait([self = shared_from_this()](error_code error) {
      if (!error) self->accept();
    });
  }
  void take(tcp::socket socket);
  bool make_room(const std::string& client);
  void refuse(tcp::socket& socket);

  HttpLimits limits_;
  HttpHandler& handler_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  tcp protocol_ = tcp::v4();
  asio::steady_timer pause_{io_};
  int port_ = 0;
  bool draining_ = false;
  std::atomic<int64_t> bodies_bytes_ = 0;  // being read, or held by a handler
  std::list<std::shared_ptr<Connection>> connections_;
  std::list<Connection*> waiting_;  // for a head, the longest first
  std::unordered_map<std::string, int64_t> by_client_;
  std::atomic<int64_t> open_ = 0, accepted_ = 0, refused_ = 0, late_ = 0, faults_ = 0;
};

// One client's connection: it reads a request, waits for its answer, writes
// the answer, and reads the next request. Runs on the server's thread.
class HttpServer::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Impl> server, tcp::socket socket, std::string client)
      : server_(std::move(server)),
        socket_(std::move(socket)),
        client_(std::move(client)),
        timer_(socket_.get_executor()) {}

  void begin() {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    wait_for_head(server_->limits_.header_s);
    read();
  }

  // Closes the connection at once.
  void close() {
    if (stage_ == Stage::kClosed) return;
    stop_waiting();
    stage_ = Stage::kClosed;
    leave();
    hold(0);
    timer_.cancel();
    error_code ignored;
    socket_.close(ignored);
    --server_->by_client_[client_];
    if (server_->by_client_[client_] == 0) server_->by_client_.erase(client_);
    --server_->open_;
    server_->connections_.erase(place_);
  }
  // Closes the connection after the answer that it waits for.
  void drain() {
    keep_alive_ = false;
    if (stage_ == Stage::kHead && buffer_.empty()) close();
  }

  void send(uint64_t number, Response response);
  void begin_stream(uint64_t number, const std::string& content_type);
  void write_piece(uint64_t number, const std::string& piece);
  void end_stream(uint64_t number);

  std::list<std::shared_ptr<Connection>>::iterator place_;

 private:
  enum class Stage : uint8_t { kHead, kBody, kAnswer, kFarewell, kClosed };

  void read();
  void heard(error_code error, size_t bytes);
  void ended();
  void advance();
  bool read_head();
  bool read_body();
  void answer();
  void refuse(Response response);
  // Refuses, then closes: the following bytes may be no request.
  void refuse_and_end(Response response) {
    keep_alive_ = false;
    refuse(std::move(response));
  }
  Response handler_refusal(int status, const std::string& message) const {
    return server_->handler_.refusal(status, message);
  }
  void write_head(const Response& response, bool sized);
  void write(std::string bytes);
  void write_next();
  void finish_answer();
  void answered();
  void leave();
  void set_deadline(double s);
  void late();
  void wait_for_head(double s) {
    stage_ = Stage::kHead;
    waiting_place_ = server_->waiting_.insert(server_->waiting_.end(), this);
    set_deadline(s);
  }
  void stop_waiting() {
    if (stage_ == Stage::kHead) server_->waiting_.erase(waiting_place_);
  }
  // Sets the number of bytes counted for this connection's body.
  void hold(int64_t bytes) { server_->bodies_bytes_ += bytes - std::exchange(held_, bytes); }

  std::shared_ptr<Impl> server_;
  tcp::socket socket_;
  std::string client_;
  asio::steady_timer timer_;
  std::list<Connection*>::iterator waiting_place_;
  Stage stage_ = Stage::kClosed;
  std::array<char, kReadBytes> chunk_{};
  std::string buffer_;  // received bytes that belong to no request yet
  size_t searched_ = 0;
  bool reading_ = false, ended_ = false, begun_ = false;
  http::Head head_;
  std::optional<http::BodyReader> body_;
  int64_t held_ = 0;
  uint64_t number_ = 0;  // the request's
  std::shared_ptr<Answer> answer_;
  bool keep_alive_ = true, chunked_ = false, complete_ = false;
  std::deque<std::string> out_;
  bool writing_ = false;
};

// The handler's side of one request.
class HttpServer::Impl::Answer : public Reply, public std::enable_shared_from_this<Answer> {
 public:
  Answer(std::shared_ptr<Impl> server, std::weak_ptr<Connection> connection, uint64_t number)
      : server_(std::move(server)), connection_(std::move(connection)), number_(number) {}

  void send(Response response) override {
    post([response = std::move(response)](Connection& to, uint64_t number) mutable {
      to.send(number, std::move(response));
    });
  }
  void begin(std::string content_type) override {
    post([content_type = std::move(content_type)](Connection& to, uint64_t number) {
      to.begin_stream(number, content_type);
    });
  }
  void write(std::string piece) override {
    backlog_ += static_cast<int64_t>(piece.size());
    post([piece = std::move(piece)](Connection& to, uint64_t number) { to.write_piece(number, piece); });
  }
  void end() override {
    post([](Connection& to, uint64_t number) { to.end_stream(number); });
  }
  bool gone() const override { return gone_; }
  int64_t backlog() const override { return backlog_; }
  void on_change(std::function<void()> changed) override {
    const auto shared = std::make_shared<std::function<void()>>(std::move(changed));
    asio::post(server_->io_, [self = shared_from_this(), shared] {
      if (self->gone_) return (*shared)();
      self->changed_ = std::move(*shared);
    });
  }

  // The connection's side.
  void taken_all() {
    if (backlog_.exchange(0) > 0 && changed_) changed_();
  }
  void left() {
    gone_ = true;
    if (changed_) std::exchange(changed_, {})();
  }
  void done() { changed_ = {}; }

 private:
  template <typename Action>
  void post(Action action) {
    asio::post(server_->io_,
               [connection = connection_, number = number_, action = std::move(action)]() mutable {
                 if (const auto to = connection.lock()) action(*to, number);
               });
  }

  std::shared_ptr<Impl> server_;
  std::weak_ptr<Connection> connection_;
  uint64_t number_;
  std::atomic<bool> gone_ = false;
  std::atomic<int64_t> backlog_ = 0;
  std::function<void()> changed_;  // used on the server's thread
};

void HttpServer::Impl::drain() {
  stop_accepting();
  const auto connections = connections_;
  for (const auto& connection : connections) connection->drain();
}

void HttpServer::Impl::take(tcp::socket socket) {
  ++accepted_;
  error_code error;
  const tcp::endpoint endpoint = socket.remote_endpoint(error);
  if (error) return;  // it has left already
  const std::string client = client_of(endpoint);
  if (!make_room(client)) return refuse(socket);
  ++by_client_[client];
  ++open_;
  const auto connection = std::make_shared<Connection>(shared_from_this(), std::move(socket), client);
  connection->place_ = connections_.insert(connections_.end(), connection);
  connection->begin();
}

bool HttpServer::Impl::make_room(const std::string& client) {
  const auto own = by_client_.find(client);
  if (own != by_client_.end() && own->second >= limits_.connections_per_client) return false;
  if (open_ < limits_.connections) return true;
  if (waiting_.empty()) return false;
  waiting_.front()->close();
  return true;
}

// Does not read the request: writes as much as fits the socket's buffer, then shuts down.
void HttpServer::Impl::refuse(tcp::socket& socket) {
  ++refused_;
  const Response told =
      handler_.refusal(503, "too many connections are open: ask again later, on those that there are");
  const std::string bytes = text("HTTP/1.1 503 ", reason_of(503), "\r\nContent-Type: ", told.content_type,
                                 "\r\nContent-Length: ", told.body.size(),
                                 "\r\nRetry-After: 1\r\nConnection: close\r\n\r\n", told.body);
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(bytes), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

void HttpServer::Impl::Connection::read() {
  if (reading_ || ended_ || stage_ == Stage::kClosed) return;
  if (stage_ == Stage::kAnswer && buffer_.size() >= kReadBytes) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(chunk_), [self = shared_from_this()](error_code error, size_t bytes) {
    self->reading_ = false;
    self->heard(error, bytes);
  });
}

void HttpServer::Impl::Connection::heard(error_code error, size_t bytes) {
  if (stage_ == Stage::kClosed) return;
  if (error == asio::error::eof) {
    ended_ = true;
    return ended();
  }
  if (error) return close();
  if (stage_ != Stage::kFarewell) {
    buffer_.append(chunk_.data(), bytes);
    advance();
  }
  read();
}

// The client sends no more: it has left, or it waits for the answer with its own side closed, as some do.
void HttpServer::Impl::Connection::ended() {
  if (stage_ != Stage::kAnswer) return close();
  keep_alive_ = keep_alive_ && !buffer_.empty();
  if (!complete_) set_deadline(kLeavingS);
}

void HttpServer::Impl::Connection::advance() {
  while ((stage_ == Stage::kHead && read_head()) || (stage_ == Stage::kBody && read_body())) {
  }
}

bool HttpServer::Impl::Connection::read_head() {
  if (buffer_.empty()) return false;
  if (!std::exchange(begun_, true)) set_deadline(server_->limits_.header_s);
  HttpHandler::Admission admission;
  try {
    const size_t end = http::end_of_head(buffer_, searched_);
    if (std::max(end, end == 0 ? buffer_.size() : 0) > static_cast<size_t>(server_->limits_.header_bytes))
      throw http::Fault(431,
                        text("the request's head has more than ", server_->limits_.header_bytes, " bytes"));
    if (end == 0) return false;
    head_ = http::read_head(std::string_view(buffer_).substr(0, end));
    buffer_.erase(0, end);
    searched_ = 0;
    keep_alive_ = head_.keep_alive && !server_->draining_;
    admission = server_->handler_.admit(head_);
    if (!admission.refusal) body_.emplace(head_, std::min(admission.body_bytes, server_->limits_.body_bytes));
  } catch (const http::Fault& fault) {
    ++server_->faults_;
    refuse_and_end(handler_refusal(fault.status(), fault.what()));
    return false;
  }
  stop_waiting();
  stage_ = Stage::kBody;
  ++number_;
  if (admission.refusal) {
    keep_alive_ = keep_alive_ && !head_.has_body();
    refuse(std::move(*admission.refusal));
    return false;
  }
  set_deadline(server_->limits_.body_s);
  if (head_.expects_continue && head_.has_body() && buffer_.empty()) write("HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

bool HttpServer::Impl::Connection::read_body() {
  try {
    buffer_.erase(0, body_->read(buffer_));
  } catch (const http::Fault& fault) {
    ++server_->faults_;
    refuse_and_end(handler_refusal(fault.status(), fault.what()));
    return false;
  }
  hold(body_->bytes());
  if (server_->bodies_bytes_ > server_->limits_.bodies_bytes) {
    Response told = server_->handler_.refusal(503, "too many bytes of requests are held: ask again later");
    told.fields.emplace_back("Retry-After", "1");
    refuse_and_end(std::move(told));
    return false;
  }
  if (!body_->done()) return false;
  answer();
  return stage_ == Stage::kHead;
}

void HttpServer::Impl::Connection::answer() {
  stage_ = Stage::kAnswer;
  complete_ = chunked_ = false;
  timer_.cancel();
  answer_ = std::make_shared<Answer>(server_, weak_from_this(), number_);
  if (ended_) set_deadline(kLeavingS);
  HttpRequest request{head_, body_->take(), client_, {}};
  request.held.reset(new int64_t(std::exchange(held_, 0)), [server = server_](const int64_t* bytes) {
    server->bodies_bytes_ -= *bytes;
    delete bytes;
  });
  server_->handler_.handle(std::move(request), answer_);
}

// Answers an invalid request, or one that is not read to its end.
void HttpServer::Impl::Connection::refuse(Response response) {
  stop_waiting();
  stage_ = Stage::kAnswer;
  complete_ = false;
  send(number_, std::move(response));
}

void HttpServer::Impl::Connection::write_head(const Response& response, bool sized) {
  keep_alive_ = keep_alive_ && !server_->draining_;
  std::string head = text("HTTP/1.1 ", response.status, " ", reason_of(response.status),
                          "\r\nDate: ", date_now(), "\r\nContent-Type: ", response.content_type, "\r\n");
  if (sized) head += text("Content-Length: ", response.body.size(), "\r\n");
  if (chunked_) head += "Transfer-Encoding: chunked\r\n";
  for (const auto& [name, value] : response.fields) head += text(name, ": ", value, "\r\n");
  head +=
      keep_alive_ ? (head_.minor_version > 0 ? "" : "Connection: keep-alive\r\n") : "Connection: close\r\n";
  write(head + "\r\n");
}

void HttpServer::Impl::Connection::send(uint64_t number, Response response) {
  if (number != number_ || stage_ != Stage::kAnswer || complete_) return;
  write_head(response, /*sized=*/true);
  if (head_.method != "HEAD") write(std::move(response.body));
  finish_answer();
}

void HttpServer::Impl::Connection::begin_stream(uint64_t number, const std::string& content_type) {
  if (number != number_ || stage_ != Stage::kAnswer || complete_) return;
  chunked_ = head_.minor_version > 0;
  keep_alive_ = keep_alive_ && chunked_;
  write_head(
      {.status = 200, .body = "", .content_type = content_type, .fields = {{"Cache-Control", "no-cache"}}},
      /*sized=*/false);
}

void HttpServer::Impl::Connection::write_piece(uint64_t number, const std::string& piece) {
  if (number != number_ || stage_ != Stage::kAnswer || complete_ || piece.empty()) return;
  if (!chunked_) return write(piece);
  std::array<char, 24> size{};
  const int digits = std::snprintf(size.data(), size.size(), "%zx\r\n", piece.size());
  write(std::string(size.data(), static_cast<size_t>(digits)) + piece + "\r\n");
}

void HttpServer::Impl::Connection::end_stream(uint64_t number) {
  if (number != number_ || stage_ != Stage::kAnswer || complete_) return;
  if (chunked_) write("0\r\n\r\n");
  finish_answer();
}

void HttpServer::Impl::Connection::finish_answer() {
  complete_ = true;
  if (answer_) answer_->done();
  if (!writing_) answered();
}

void HttpServer::Impl::Connection::write(std::string bytes) {
  if (bytes.empty()) return;
  out_.push_back(std::move(bytes));
  if (!writing_) write_next();
}

void HttpServer::Impl::Connection::write_next() {
  writing_ = true;
  if (stage_ == Stage::kAnswer) set_deadline(ended_ && !complete_ ? kLeavingS : server_->limits_.write_s);
  std::vector<asio::const_buffer> buffers;
  for (const std::string& each : out_) buffers.push_back(asio::buffer(each));
  socket_.async_write_some(buffers, [self = shared_from_this()](error_code error, size_t bytes) {
    if (self->stage_ == Stage::kClosed) return;
    self->writing_ = false;
    if (error) return self->close();
    while (bytes > 0 && bytes >= self->out_.front().size()) {
      bytes -= self->out_.front().size();
      self->out_.pop_front();
    }
    if (bytes > 0) self->out_.front().erase(0, bytes);
    if (!self->out_.empty()) return self->write_next();
    if (self->stage_ == Stage::kAnswer) self->answered();
  });
}

// All bytes so far were taken; the answer may have more.
void HttpServer::Impl::Connection::answered() {
  if (!complete_) {
    if (!ended_) timer_.cancel();
    if (answer_) answer_->taken_all();
    return;
  }
  answer_.reset();
  body_.reset();
  hold(0);
  head_ = {};
  if (keep_alive_) {
    begun_ = false;
    wait_for_head(server_->limits_.idle_s);
    asio::post(socket_.get_executor(), [self = shared_from_this()] {
      self->advance();
      if (self->ended_ && self->stage_ == Stage::kHead) return self->close();
      self->read();
    });
    return;
  }
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  if (ended_) return close();
  // Reads and discards the client's further bytes for a
  // moment: otherwise its system would discard the answer.
  stage_ = Stage::kFarewell;
  buffer_.clear();
  set_deadline(kFarewellS);
  read();
}

void HttpServer::Impl::Connection::leave() {
  if (answer_) answer_->left();
  answer_.reset();
}

void HttpServer::Impl::Connection::set_deadline(double s) {
  timer_.expires_after(seconds(s));
  timer_.async_wait([self = shared_from_this()](error_code error) {
    if (!error && self->timer_.expiry() <= std::chrono::steady_clock::now()) self->late();
  });
}

void HttpServer::Impl::Connection::late() {
  if (stage_ == Stage::kClosed) return;
  const bool asks = (stage_ == Stage::kHead && begun_) || stage_ == Stage::kBody;
  if (stage_ != Stage::kFarewell && !ended_) ++server_->late_;
  if (!asks) return close();
  refuse_and_end(handler_refusal(408, "the request did not come in time"));
}

HttpServer::HttpServer(const std::string& host, int port, const HttpLimits& limits, HttpHandler& handler)
    : impl_(std::make_shared<Impl>(limits, handler)) {
  impl_->listen(host, port);
  impl_->accept();
}

HttpServer::~HttpServer() {
  // Connections and the server hold references to each other.
  const auto connections = impl_->connections_;
  for (const auto& connection : connections) connection->close();
  impl_->stop_accepting();
  impl_->pause_.cancel();
  impl_->io_.restart();
  impl_->io_.poll();
}

int HttpServer::port() const { return impl_->port_; }
void HttpServer::run() { impl_->io_.run(); }
void HttpServer::drain() {
  asio::post(impl_->io_, [impl = impl_.get()] { impl->drain(); });
}
void HttpServer::stop() { impl_->io_.stop(); }
void HttpServer::post(std::function<void()> action) { asio::post(impl_->io_, std::move(action)); }
HttpFigures HttpServer::figures() const {
  return {.connections = impl_->open_,
          .accepted = impl_->accepted_,
          .refused = impl_->refused_,
          .late = impl_->late_,
          .faults = impl_->faults_};
}

}  // namespace sluice::serve
