// sluice._sluice: the planner's C++ for Python. Conversions and error types only; what people call, with
// checked arguments and documentation, is sluice/__init__.py.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "corpus/lengths.h"
#include "cost/measured_prices.h"
#include "plan/planner.h"
#include "session/methods.h"
#include "session/planning_inputs.h"
#include "session/propose_for_both.h"
#include "session/strategy_file.h"
#include "strategy/readable.h"
#include "strategy/scheme.h"
#include "study/comparison.h"
#include "study/methods.h"
#include "study/scenario.h"

namespace py = pybind11;

namespace sluice::python {

namespace {

using base::Json;

// An array of ours that NumPy owns.
template <typename T>
py::array_t<T> as_array(const std::vector<T>& values) {
  return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

template <typename T>
using Array = py::array_t<T, py::array::c_style>;

template <typename T>
std::vector<T> as_vector(const Array<T>& array) {
  return {array.data(), array.data() + array.size()};
}

// JSON as dictionaries, lists and scalars: Python has the same names as our files.
py::object as_python(const Json& json) {
  switch (json.type()) {
    case Json::value_t::object: {
      py::dict dictionary;
      for (const auto& [key, value] : json.items()) dictionary[py::str(key)] = as_python(value);
      return dictionary;
    }
    case Json::value_t::array: {
      py::list list(json.size());
      for (size_t i = 0; i < json.size(); ++i) list[i] = as_python(json[i]);
      return list;
    }
    case Json::value_t::string: return py::str(json.get_ref<const std::string&>());
    case Json::value_t::boolean: return py::bool_(json.get<bool>());
    case Json::value_t::number_integer: return py::int_(json.get<int64_t>());
    case Json::value_t::number_unsigned: return py::int_(json.get<uint64_t>());
    case Json::value_t::number_float: return py::float_(json.get<double>());
    default: return py::none();
  }
}

// Runs while other Python threads do.
template <typename Work>
auto without_gil(const Work& work) {
  const py::gil_scoped_release released;
  return work();
}

Array<int32_t> read_lengths(const std::vector<std::filesystem::path>& paths) {
  return as_array(without_gil([&] { return session::read_lengths(paths); }));
}

py::object summarize(const Array<int32_t>& lengths) {
  const std::vector<int32_t> values = as_vector(lengths);
  return as_python(without_gil([&] { return corpus::to_json(corpus::LengthDistribution(values)); }));
}

// (tp, pp, cp, fsdp, ep).
std::tuple<int, int, int, int, int> degrees_of(const std::string& text) {
  const strategy::Scheme scheme = strategy::parse_scheme(text);
  return {scheme.tp, scheme.pp, scheme.cp, scheme.fsdp, scheme.ep};
}

py::object propose(session::PlanningOptions options, const Array<int32_t>& lengths, const std::string& method,
                   int max_strategies, int max_cp, bool share) {
  std::vector<int32_t> values = as_vector(lengths);
  return as_python(without_gil([&] {
    options.method = session::parse_method(method);
    options.max_strategies = max_strategies;
    options.max_cp = max_cp;
    options.fsdp = share;
    session::check_proposes(options.method);
    const session::PlanningInputs inputs = session::resolve_planning(options, std::move(values));
    const plan::PlannerOptions planner = session::planner_options(inputs);
    return session::strategies_to_json(session::propose_for_both(planner, inputs.cost()), planner,
                                       inputs.cost(), inputs.cluster, session::to_json(inputs));
  }));
}

// The contents of simulation.json and metrics.jsonl.
std::pair<py::object, std::string> simulate(session::PlanningOptions options, const Array<int32_t>& lengths,
                                            const std::string& systems, int64_t steps, int max_cp) {
  std::vector<int32_t> values = as_vector(lengths);
  auto [summary, metrics] = without_gil([&] {
    options.max_cp = max_cp;
    const study::Scenario scenario =
        study::scenario_of(session::resolve_planning(options, std::move(values)), steps);
    const std::vector<study::SystemResult> results =
        study::compare(scenario, {.systems = study::parse_systems(systems), .explains_wire = true});
    return std::pair{study::simulation_json(scenario, results), study::metrics_lines(results)};
  });
  return {as_python(summary), std::move(metrics)};
}

class Planner {
 public:
  Planner(session::PlanningOptions options, const std::string& method)
      : planner_(without_gil([&] {
          options.method = session::parse_method(method);
          const session::PlanningInputs inputs = session::resolve_machine(options);
          return session::make_planner(session::planner_options(inputs), inputs.cost());
        })) {}

  int64_t max_len() const { return planner_.max_len_tokens(); }

  // a, b and c of the slowest stage, as calibration.json has them.
  std::tuple<double, double, int64_t> stage_times(const std::string& text) const {
    const strategy::Scheme scheme = strategy::parse_scheme(text);
    if (!planner_.cost().has_scheme(scheme))
      throw base::InputError(
          base::text("the calibration has no times for ", text, ": give a scheme that is planned"));
    const cost::Quadratic times = planner_.cost().stage_times(scheme, planner_.cost().slowest_stage(scheme));
    const double unit = std::ldexp(1.0, -cost::Quadratic::kFractionBits);
    return {static_cast<double>(times.a) * unit, static_cast<double>(times.b) * unit, times.c_ns};
  }

  py::object plan(const Array<int64_t>& lengths, const Array<int64_t>& documents, int64_t step) const {
    std::vector<strategy::Sequence> sequences;
    for (py::ssize_t i = 0; i < lengths.size(); ++i)
      sequences.push_back({.document = documents.at(i), .length_tokens = lengths.at(i)});
    return as_python(without_gil([&] { return strategy::to_json(planner_.plan(step, sequences)); }));
  }

 private:
  plan::Planner planner_;
};

session::PlanningOptions options_of(int gpus, std::string cluster, std::string model, std::string calibration,
                                    std::vector<std::string> strategies, int64_t context_length,
                                    int64_t tokens_per_step, int64_t seed, const std::string& exchange,
                                    const std::string& stages, std::optional<cost::MeasuredPrices> prices) {
  return {.gpus = gpus,
          .cluster = std::move(cluster),
          .model = std::move(model),
          .calibration = std::move(calibration),
          .prices = prices,
          .context_length = context_length,
          .tokens_per_step = tokens_per_step,
          .strategies = std::move(strategies),
          .seed = seed,
          .stages = strategy::parse_stage_cut(stages),
          .exchange = strategy::parse_exchange_rule(exchange)};
}

}  // namespace

PYBIND11_MODULE(_sluice, module) {
  study::offer_methods();
  module.attr("__version__") = SLUICE_VERSION;
  py::register_exception<base::InputError>(module, "InputError", PyExc_ValueError);
  py::register_exception<base::InfeasibleError>(module, "InfeasibleError", PyExc_ValueError);

  py::class_<cost::MeasuredPrices>(module, "Prices")
      .def(py::init([](const std::string& scheme, double a, double b, double c, int64_t max_tokens) {
             return cost::MeasuredPrices{strategy::parse_scheme(scheme), a, b, c, max_tokens};
           }),
           py::arg("scheme"), py::arg("a"), py::arg("b"), py::arg("c"), py::arg("max_tokens"));

  const session::PlanningOptions defaults;
  py::class_<session::PlanningOptions>(module, "Options")
      .def(py::init(&options_of), py::kw_only(), py::arg("gpus"), py::arg("cluster"), py::arg("model"),
           py::arg("calibration"), py::arg("strategies") = defaults.strategies,
           py::arg("context_length") = defaults.context_length,
           py::arg("tokens_per_step") = defaults.tokens_per_step, py::arg("seed") = defaults.seed,
           py::arg("exchange") = base::word_of(strategy::kExchangeRules, defaults.exchange),
           py::arg("stages") = base::word_of(strategy::kStageCuts, defaults.stages),
           py::arg("prices") = defaults.prices);
  py::class_<Planner>(module, "Planner")
      .def(py::init<const session::PlanningOptions&, const std::string&>(), py::arg("options"),
           py::arg("method"))
      .def_property_readonly("max_len", &Planner::max_len)
      .def("stage_times", &Planner::stage_times, py::arg("scheme"))
      .def("plan", &Planner::plan, py::arg("lengths"), py::arg("documents"), py::arg("step"));

  module.def("degrees_of", &degrees_of, py::arg("scheme"));
  module.def("readable", &strategy::readable_text, py::arg("text"));
  module.def("read_lengths", &read_lengths, py::arg("paths"));
  module.def("summarize", &summarize, py::arg("lengths"));
  module.def("propose", &propose, py::arg("options"), py::arg("lengths"), py::arg("method"),
             py::arg("max_strategies"), py::arg("max_cp"), py::arg("fsdp"));
  module.def("simulate", &simulate, py::arg("options"), py::arg("lengths"), py::arg("systems"),
             py::arg("steps"), py::arg("max_cp"));
}

}  // namespace sluice::python
