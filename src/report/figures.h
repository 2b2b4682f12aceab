// The sections of a report, each a heading, a sentence that says what to see, a figure and its numbers. A
// section whose data is missing draws nothing.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/markup.h"
#include "report/run_data.h"

namespace sluice::report {

void draw_speed(base::Markup& out, const RunData& data);        // systems: step time, spread, speed-up
void draw_time_shares(base::Markup& out, const RunData& data);  // shares of the ranks' time
void draw_timelines(base::Markup& out, const RunData& data);    // a step, rank by rank
void draw_step_times(base::Markup& out, const RunData& data);   // over steps, prediction beside measurement
void draw_slowdowns(base::Markup& out, const RunData& data);    // ranks' slowdowns, over steps
void draw_loss(base::Markup& out, const RunData& data);
void draw_learning(base::Markup& out, const RunData& data);  // from rewards or preferences
void draw_acts(base::Markup& out, const RunData& data);      // steps with several models
void draw_lengths(base::Markup& out, const RunData& data);
void draw_strategies(base::Markup& out, const RunData& data);  // each one's share and steps
void draw_gaps(base::Markup& out, const RunData& data);        // to the proved bound
void draw_memory(base::Markup& out, const RunData& data);      // against the device
void draw_facts(base::Markup& out, const RunData& data);       // the run's facts, and the kind of each figure

// The CSS classes of a system's colour and dashes: the same in every figure.
std::string system_style(size_t index);
std::string system_style(const RunData& data, const std::string& name);

// Opens a section with its heading.
base::Markup::Element section(base::Markup& out, const std::string& id, const std::string& heading);

// A table. Every row has a cell for each of its `letters`.
struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::string letters;  // a column each: l left, r right, m left in fixed width
};
void draw_table(base::Markup& out, const Table& table);

}  // namespace sluice::report
