#include "base/text.h"
#include "report/explain.h"

namespace sluice::report {

namespace {

using base::human_count;
using base::human_duration;
using base::human_percent;
using base::text;

double ratio(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// How much longer than `ns` `longer_ns` is.
std::string excess(int64_t longer_ns, int64_t ns) { return human_percent(ratio(longer_ns - ns, ns)); }

std::string sequences_text(int64_t sequences, int64_t tokens) {
  return text(human_count(sequences, "sequence", "sequences"), " of ",
              human_count(tokens, "token", "tokens"));
}

std::string batch_text(const Explanation& explanation) {
  const std::string spread = explanation.sequences == 1
                                 ? ""
                                 : text("; the longest has ", human_count(explanation.longest_tokens),
                                        ", half of them at most ", human_count(explanation.median_tokens));
  return text("Step ", explanation.step, " has ", sequences_text(explanation.sequences, explanation.tokens),
              " in all", spread,
              explanation.branches == 0 ? ""
                                        : text("; behind prefixes that they share lie ",
                                               human_count(explanation.branches, "branch", "branches")),
              ".\n");
}

// The fastest candidate other than the chosen one; null if no other holds the batch.
const ExplainedCandidate* next_best(const Explanation& explanation) {
  for (const ExplainedCandidate& candidate : explanation.candidates) {
    if (candidate.strategy != explanation.strategy && candidate.estimated_ns) return &candidate;
  }
  return nullptr;
}

std::string comparison_text(const Explanation& explanation) {
  const ExplainedCandidate* next = next_best(explanation);
  if (next == nullptr) return "No other candidate holds the batch.";
  const int64_t next_ns = *next->estimated_ns;
  if (next_ns <= explanation.estimated_ns)
    return text("Planned alone, ", next->strategy, " takes ", human_duration(next_ns), ".");
  const std::string cost = text("The next best, ", next->strategy, ", would take ", human_duration(next_ns),
                                ": ", excess(next_ns, explanation.estimated_ns), " longer. ");
  if (next->lower_bound_ns == 0) return cost;
  if (next->lower_bound_ns > explanation.estimated_ns) {
    return text(cost, "It is proved that it takes ", human_duration(next->lower_bound_ns), " at least.");
  }
  return text(cost, "Its lower bound of ", human_duration(next->lower_bound_ns), " does not rule it out.");
}

std::string choice_text(const Explanation& explanation) {
  const bool has_beside = explanation.estimated_ns > explanation.schedule_ns;
  const std::string took =
      text("The plan takes ", explanation.strategy, ", estimated at ",
           human_duration(explanation.estimated_ns), has_beside ? " with pull, push and update" : "", ": ");
  const size_t count = explanation.candidates.size();
  if (explanation.selection != plan::Selection::kBest)
    return text(took, "the configuration selects it. ", comparison_text(explanation), "\n");
  if (count == 1) return text(took, "it is the only candidate.\n");
  const ExplainedCandidate* next = next_best(explanation);
  const bool is_least = next == nullptr || *next->estimated_ns >= explanation.estimated_ns;
  return text(took, is_least ? "the least of " : "the method's choice among ", count, " candidates. ",
              comparison_text(explanation), "\n");
}

std::string candidate_table(const Explanation& explanation) {
  std::vector<std::vector<std::string>> rows = {
      {"  estimated", "more", "at least", "max sequence length", "strategy"}};
  for (const ExplainedCandidate& candidate : explanation.candidates) {
    const bool fits = candidate.estimated_ns.has_value();
    const bool is_chosen = candidate.strategy == explanation.strategy;
    rows.push_back({fits ? human_duration(*candidate.estimated_ns) : "too short",
                    is_chosen || !fits ? "" : excess(*candidate.estimated_ns, explanation.estimated_ns),
                    candidate.lower_bound_ns > 0 ? human_duration(candidate.lower_bound_ns) : "",
                    human_count(candidate.max_len_tokens),
                    text(candidate.strategy, is_chosen ? "  (taken)" : "")});
  }
  return base::table_text(rows, "rrrrl");
}

std::string ranks_text(const ExplainedPipeline& pipeline) {
  if (pipeline.first_rank == pipeline.last_rank) return text("rank ", pipeline.first_rank);
  return text("ranks ", pipeline.first_rank, "-", pipeline.last_rank);
}

// The reason why the pipeline that ends last takes so long.
std::string cause_text(const ExplainedPipeline& last) {
  const double busy = ratio(last.busy_ns, last.end_ns);
  const double path = ratio(last.longest_path_ns, last.end_ns);
  const std::string way = text("its longest sequence, ", human_count(last.longest_tokens, "token", "tokens"),
                               ", needs ", human_duration(last.longest_path_ns));
  if (last.stages == 1) {
    return text("It computes all that time, without waiting; its longest sequence has ",
                human_count(last.longest_tokens, "token", "tokens"), ".");
  }
  const std::string share =
      text("Stage ", last.busiest_stage, " of ", last.stages, " computes for ", human_percent(busy),
           " of that time and waits for the rest (filling and draining); ");
  if (path > 0.9) {
    return text(share, way, " to pass all stages and back: little else has room beside it.");
  }
  return text(share, way, " of it to pass all stages and back.");
}

std::string last_text(const Explanation& explanation) {
  const ExplainedPipeline& last = explanation.pipelines.front();
  std::string out =
      text("Last to end, at ", human_duration(last.end_ns), ", is the pipeline ", last.scheme, " on ",
           ranks_text(last), " with ", sequences_text(last.sequences, last.tokens), " in ",
           human_count(last.lane_parts, "micro-batch", "micro-batches"), ". ", cause_text(last));
  if (explanation.pipelines.size() == 1) return out + "\n";
  const ExplainedPipeline& first = explanation.pipelines.back();
  out += text(" First to end, at ", human_duration(first.end_ns), " (",
              human_percent(ratio(last.end_ns - first.end_ns, last.end_ns)), " earlier), is ", first.scheme,
              " on ", ranks_text(first));
  return out + (first.sequences == 0 ? ", which gets nothing.\n" : ".\n");
}

std::string proof_text(strategy::Proof proof, int64_t longest_tokens) {
  using strategy::Proof;
  switch (proof) {
    case Proof::kPath:
      return text("Its longest sequence bounds it: ", human_count(longest_tokens),
                  " tokens pass all stages of some pipeline and back in no less, whatever runs beside them. "
                  "Pipelines with more ranks would shorten that.");
    case Proof::kPigeonhole:
      return "Its long sequences bound it: there are more of them than pipelines that hold them, so that one "
             "pipeline gets several. More such pipelines would help.";
    case Proof::kLongest:
      return "Its longest sequences bound it: however they go to the pipelines that hold them, those that "
             "meet "
             "delay each other. More such pipelines would help.";
    case Proof::kPrices:
      return "Its work bounds it: even if each sequence went where it costs least, all ranks would be busy "
             "for "
             "that long. Only schemes that are cheaper for these lengths, or more GPUs, would help.";
    case Proof::kRings:
      return "Its work and its exchanges bound it: long sequences must be cut over lanes of several nodes to "
             "end in time, and there their transfers keep lanes waiting. Faster links between nodes would "
             "help.";
  }
  return "";
}

std::string bound_text(const Explanation& explanation) {
  if (explanation.branches > 0) return "Of sequences with branches no lower bound is proved.\n";
  if (explanation.lower_bound_ns == 0) return "This method proves no lower bound.\n";
  return text("No schedule of these candidates takes less than ", human_duration(explanation.lower_bound_ns),
              ", so this one, of ", human_duration(explanation.schedule_ns), ", is within ",
              human_percent(static_cast<double>(explanation.gap_ppm) / 1e6), " of the best. ",
              explanation.bounded_by ? proof_text(*explanation.bounded_by, explanation.longest_tokens)
                                     : "What proves it: .",
              "\n");
}

}  // namespace

std::string explanation_text(const Explanation& explanation) {
  return text(batch_text(explanation), "\n", choice_text(explanation), "\n", candidate_table(explanation),
              "\n", last_text(explanation), "\n",
              explanation.cuts.empty() ? "" : cuts_text(explanation.cuts) + "\n",
              explanation.compression.empty() ? "" : compression_text(explanation.compression) + "\n",
              bound_text(explanation));
}

}  // namespace sluice::report
