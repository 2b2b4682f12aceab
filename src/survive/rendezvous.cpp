#include "survive/rendezvous.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "survive/control.h"
#include "transport/gloo.h"

namespace sluice::survive {

namespace {

// Computes rank 0's answer from all supervisors' arrivals.
std::string open_run(const std::vector<std::string>& texts) {
  std::vector<membership::Arrival> arrivals;
  for (const std::string& text : texts)
    arrivals.push_back(membership::arrival_from_json(base::parse_json(text, "an arrival"), "an arrival"));
  membership::FirstMembership opening = membership::first_membership_of(arrivals);
  if (opening.history == 0)
    std::memcpy(&opening.history, transport::random_bytes(sizeof opening.history).data(),
                sizeof opening.history);
  return membership::to_json(opening).dump();
}

// Runs in the child process. Its supervisor continues once the answer is complete. Rank 0's child stays for
// slower ranks, so that a rank lost meanwhile does not hold up rank 0.
int attend(const transport::GlooOptions& options, const membership::Arrival& own, transport::Socket writing) {
  const auto tell = [&](const std::string& answer) {
    for (size_t sent = 0; sent < answer.size();) {
      const ssize_t now = ::write(writing.fd(), answer.data() + sent, answer.size() - sent);
      if (now < 0) throw base::RunError("the supervisor did not hear how the ranks met");
      sent += static_cast<size_t>(now);
    }
    writing.close();
  };
  try {
    transport::rendezvous(options, membership::to_json(own).dump(), &open_run, tell);
    return 0;
  } catch (...) {
    if (!writing.is_open()) return 0;  // the answer was already delivered
    const base::Error error = as_error(std::current_exception());
    base::log_error(error.what());
    return error.exit_status();
  }
}

}  // namespace

Rendezvous::Rendezvous(const transport::Launch& launch, int64_t join_timeout_ns,
                       const membership::Arrival& own) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw base::RunError(base::text("cannot meet the other ranks: ", std::strerror(errno)));
  reading_ = transport::Socket(ends[0]);
  transport::Socket writing(ends[1]);
  const transport::GlooOptions options{.launch = launch, .join_timeout_ns = join_timeout_ns};
  process_.start([&] { return attend(options, own, std::move(writing)); });
}

bool Rendezvous::read() {
  std::array<char, 4096> buffer;
  const ssize_t got = ::read(reading_.fd(), buffer.data(), buffer.size());
  if (got > 0) answer_.append(buffer.data(), static_cast<size_t>(got));
  return got > 0;
}

int Rendezvous::status() {
  if (!answer_.empty()) return 0;
  const int status = process_.wait();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

membership::FirstMembership Rendezvous::first_membership() const {
  constexpr const char* kName = "the meeting's answer";
  return membership::first_membership_from_json(base::parse_json(answer_, kName), kName);
}

}  // namespace sluice::survive
