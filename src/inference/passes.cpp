#include "inference/passes.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <set>

#include "base/error.h"

namespace sluice::inference {
namespace {

// The pages that a request's first text has at a time, and how many of them each other text shares.
struct Prompt {
  bool held = true;  // by the first text
  std::multiset<int64_t> shared;
  int64_t most_shared() const { return shared.empty() ? 0 : *shared.rbegin(); }
};

struct Text {
  int64_t given = 0;
  int64_t tokens = 0;  // given and said
  int64_t end = 0;     // tokens when it ends
  int64_t most = 0;
  size_t first = 0;
  int64_t cached = 0;
  int64_t pages = 0;
  int64_t of_prompt = 0;           // of these, shared with the first text
  std::shared_ptr<Prompt> prompt;  // of a first text: its own
  bool running = false;

  bool on_the_way() const { return tokens - cached == 1; }  // a row a pass
};

// What Scheduler decides, where that is told here; its functions stand there under the same names.
class Replay {
 public:
  Replay(std::span<const Lengths> load, const SchedulerOptions& options, int64_t window)
      : options_(options), window_(window), free_(options.pages) {
    for (const Lengths& request : load) {
      require_room(request.prompt, request.most_tokens, options.pages);
      const size_t first = texts_.size();
      for (const int64_t said : request.said) {
        SLUICE_ASSERT(said >= 1 && said <= request.most_tokens, "a text says what it may not");
        waiting_.push_back(texts_.size());
        texts_.push_back({.given = request.prompt,
                          .tokens = request.prompt,
                          .end = request.prompt + said,
                          .most = request.prompt + request.most_tokens,
                          .first = first});
      }
    }
  }

  Passes run() {
    while (!running_.empty() || !waiting_.empty()) {
      if (const int64_t passes = alike(); passes > 0) {
        go_on_alike(passes);
      } else {
        go_on_once();
      }
    }
    return std::move(result_);
  }

 private:
  struct Piece {
    size_t text = 0;
    int64_t begin = 0, end = 0;
  };

  bool hold(Text& text, int64_t tokens) {
    const int64_t more = std::max<int64_t>(0, pages_for(tokens) - text.pages);
    if (more > free_) return false;
    free_ -= more;
    text.pages += more;
    return true;
  }

  void share_prompt(Text& text) {
    const Text& first = texts_[text.first];
    if (&first == &text || !first.running) return;
    text.of_prompt = std::min(first.cached, text.given - 1) / kPageTokens;
    text.pages = text.of_prompt;
    text.cached = text.of_prompt * kPageTokens;
    text.prompt = first.prompt;
    text.prompt->shared.insert(text.of_prompt);
  }

  void give_back(Text& text) {
    if (&texts_[text.first] == &text) {
      if (text.prompt) {
        text.prompt->held = false;
        free_ += text.pages - text.prompt->most_shared();
      }
    } else {
      free_ += text.pages - text.of_prompt;
      if (text.prompt) {
        Prompt& prompt = *text.prompt;
        prompt.shared.erase(prompt.shared.find(text.of_prompt));
        if (!prompt.held) free_ += std::max<int64_t>(0, text.of_prompt - prompt.most_shared());
      }
    }
    text.prompt.reset();
    text.pages = text.of_prompt = text.cached = 0;
    text.running = false;
  }

  bool make_room(size_t text, int64_t tokens, std::vector<Piece>& pieces) {
    while (!hold(texts_[text], tokens)) {
      const size_t youngest = running_.back();
      std::erase_if(pieces, [&](const Piece& piece) { return piece.text == youngest; });
      running_.pop_back();
      give_back(texts_[youngest]);
      waiting_.push_front(youngest);
      ++result_.evictions;
      if (youngest == text) return false;
    }
    return true;
  }

  int64_t expected_pages(const Text& text, int64_t under_way) const {
    const int64_t end = text.given + expectation_.of(text.most - text.given, under_way) - 1;
    return std::max(pages_for(std::max(end, text.tokens)), text.pages) - text.of_prompt;
  }

  bool has_room_for(const Text& text) const {
    int64_t said = 0;
    for (const size_t running : running_) said += texts_[running].tokens - texts_[running].given;
    int64_t expected = expected_pages(text, said);
    for (const size_t running : running_) expected += expected_pages(texts_[running], said);
    return expected <= options_.pages;
  }

  Piece piece_of(size_t index, int64_t end) {
    const Piece piece{index, texts_[index].cached, end};
    texts_[index].cached = end;
    return piece;
  }

  std::vector<Piece> next() {
    std::vector<Piece> pieces;
    int64_t rows = 0;
    const auto go_on = [&](bool with_one_row) {
      for (size_t i = 0; i < running_.size(); ++i) {
        const size_t text = running_[i];
        const int64_t cached = texts_[text].cached, left = texts_[text].tokens - cached;
        const int64_t taken = std::min(left, options_.most_rows - rows);
        if ((left == 1) != with_one_row || taken <= 0) continue;
        if (!make_room(text, cached + taken, pieces)) return;
        pieces.push_back(piece_of(text, cached + taken));
        rows += taken;
      }
    };
    go_on(true);
    go_on(false);
    while (!waiting_.empty() && rows < options_.most_rows && under_way() < options_.most_texts) {
      const size_t index = waiting_.front();
      Text& text = texts_[index];
      if (options_.shares_prompts) share_prompt(text);
      const int64_t taken = std::min(text.tokens - text.cached, options_.most_rows - rows);
      const int64_t wanted = std::min(text.cached + taken + 1, text.most - 1);
      const bool alone = running_.empty();
      if ((!alone && !has_room_for(text)) ||
          !hold(text, alone ? text.cached + taken : std::max(wanted, text.cached + taken))) {
        give_back(text);
        break;
      }
      waiting_.pop_front();
      text.running = true;
      if (&texts_[text.first] == &text) text.prompt = std::make_shared<Prompt>();
      running_.push_back(index);
      pieces.push_back(piece_of(index, text.cached + taken));
      rows += taken;
    }
    SLUICE_ASSERT(!pieces.empty(), "texts wait for pages that none holds");
    return pieces;
  }

  void go_on_once() {
    cost::DecodeWork work;
    for (const Piece& piece : next()) {
      Text& text = texts_[piece.text];
      const bool says = piece.end == text.tokens;
      work.add(piece.begin, piece.end, says, window_);
      if (says) ++text.tokens;
    }
    settle(work);
  }

  // How many passes of a row for each text under way follow, in which none ends but in the last, none comes
  // and none is put off; 0: not one.
  int64_t alike() {
    const bool full = under_way() >= options_.most_texts || under_way() >= options_.most_rows;
    if (running_.empty() || under_way() > options_.most_rows || !(waiting_.empty() || full || refused_))
      return 0;
    int64_t most = INT64_MAX;
    for (const size_t text : running_) {
      if (!texts_[text].on_the_way()) return 0;
      most = std::min(most, texts_[text].end - texts_[text].tokens);
    }
    const auto fits = [&](int64_t passes) {
      int64_t more = 0;
      for (const size_t text : running_)
        more += std::max<int64_t>(0, pages_for(texts_[text].cached + passes) - texts_[text].pages);
      return more <= free_;
    };
    if (fits(most)) return most;
    int64_t least = 0;
    while (most - least > 1) {
      const int64_t middle = least + (most - least) / 2;
      (fits(middle) ? least : most) = middle;
    }
    return least;
  }

  void go_on_alike(int64_t passes) {
    cost::DecodeWork work{.passes = passes};
    for (const size_t index : running_) {
      Text& text = texts_[index];
      hold(text, text.cached + passes);
      work.add_one_each(text.cached, window_);
      text.cached += passes;
      text.tokens += passes;
    }
    settle(work);
  }

  // What has been said is heard.
  void settle(const cost::DecodeWork& work) {
    const size_t before = running_.size();
    std::erase_if(running_, [&](size_t index) {
      Text& text = texts_[index];
      if (text.tokens < text.end) return false;
      expectation_.add(text.tokens - text.given);
      give_back(text);
      return true;
    });
    // Who was not let in is not let in as long as nobody leaves.
    refused_ = running_.size() == before && work.rows == under_way() && work.spoken == under_way();
    result_.work.push_back(work);
    result_.count += work.passes;
  }

  int64_t under_way() const { return static_cast<int64_t>(running_.size()); }

  SchedulerOptions options_;
  int64_t window_;
  int64_t free_;
  std::vector<Text> texts_;
  std::deque<size_t> waiting_;
  std::vector<size_t> running_;  // the oldest first
  Expectation expectation_;
  bool refused_ = false;  // nobody came in the last pass, nor could
  Passes result_;
};

}  // namespace

Passes passes_of(std::span<const Lengths> load, const SchedulerOptions& options, int64_t window) {
  return Replay(load, options, window).run();
}

}  // namespace sluice::inference
