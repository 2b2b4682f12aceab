"""The cost model of docs/formats.md and src/cost/cost_model.h once more: memory and times, whole numbers only.

A quadratic is (a, b, c): fixed-point numbers with FRACTION_BITS fractional bits, and nanoseconds.
"""

import functools
import itertools
import math

FRACTION_BITS = 32
LONGEST = 2**31 - 1


LONGEST_PIECE = 1 << 22  # elements of an exchange
SMALL_TENSORS = 1 << 16  # bytes of what is not counted one by one, beside a 512th of all


def together(nodes):
    """How many neighbours always lie on one node, of lanes on these."""
    return math.gcd(*(len(list(run)) for _, run in itertools.groupby(nodes)))


class Rejected(Exception):
    """What is wrong with a plan, in one line."""


def fixed_point(nanoseconds):
    """To the nearest multiple of 2^-32, halves away from zero."""
    scaled = math.ldexp(nanoseconds, FRACTION_BITS)
    below = math.floor(scaled)
    return below + (1 if scaled - below >= 0.5 else 0)


def quadratic(entry):
    return fixed_point(entry["a"]), fixed_point(entry["b"]), fixed_point(entry["c"]) >> FRACTION_BITS


def total(terms):
    """The sum of count * quadratic over pairs."""
    return tuple(sum(count * times[i] for count, times in terms) for i in range(3))


def nearest(value, by):
    return (value + by // 2) // by


def time_ns(times, tokens, squares):
    a, b, c = times
    return nearest(a * squares + b * tokens, 1 << FRACTION_BITS) + c


def parse_scheme(text):
    """(tp, pp, cp) of "<tp,pp,cp>"."""
    return tuple(int(degree) for degree in text.strip("<>").split(","))


def even_cut(units, parts, part):
    """How many of `units` the part gets: [part * units / parts, (part + 1) * units / parts)."""
    return (part + 1) * units // parts - part * units // parts


class Cost:
    """A calibration.json."""

    def __init__(self, calibration, world_size):
        self.world_size = world_size
        self.model = calibration["model"]
        self.layers = {entry["tp"]: entry for entry in calibration["layers"]}
        groups = calibration.get("groups", [])
        self.links = [calibration["links"]["intra"], calibration["links"]["inter"], *(each["between"] for each in groups)]
        self.group_ranks = [calibration["gpus_per_node"], *(each["ranks"] for each in groups)]
        self.memory = calibration["memory"]
        self.gpus_per_node = calibration["gpus_per_node"]
        self.hidden = self.model["hidden_size"]

    def level_of(self, a, b):
        """On which two ranks meet: 0 inside a node, 1 between nodes of the smallest group that has several."""
        return sum(a // ranks != b // ranks for ranks in self.group_ranks)

    # Parameters.

    def shard(self, tp, t):
        """Elements of (embedding, one layer, head) that TP rank t of tp holds. Norms are whole everywhere; query
        and key-value heads, rows of the MLP and of the vocabulary are cut evenly; a head that there are too
        few of is shared."""
        hidden, head_dim = self.hidden, self.model["head_dim"]
        key_values = max(1, even_cut(self.model["num_key_value_heads"], tp, t)) * head_dim
        queries = even_cut(self.model["num_attention_heads"], tp, t) * head_dim
        feed_forward = even_cut(self.model["intermediate_size"], tp, t)
        vocabulary = even_cut(self.model["vocab_size"], tp, t) * hidden
        layer = 2 * hidden + hidden * (2 * queries + 2 * key_values + 3 * feed_forward)
        return vocabulary, layer, hidden + (0 if self.model["tie_word_embeddings"] else vocabulary)

    def parameters(self):
        embedding, layer, head = self.shard(1, 0)
        return embedding + self.model["num_hidden_layers"] * layer + head

    def largest_shards(self, tp):
        return tuple(max(sizes) for sizes in zip(*(self.shard(tp, t) for t in range(tp))))

    # Stages.

    def layers_of(self, pp, stage):
        layers = self.model["num_hidden_layers"]
        return layers // pp + (1 if stage < layers % pp else 0)

    def stage_bytes(self, scheme, stage):
        tp, pp, _ = scheme
        embedding, layer, head = self.largest_shards(tp)
        last = stage == pp - 1
        elements = self.layers_of(pp, stage) * layer + (head if last else 0)
        if stage == 0 or (last and self.model["tie_word_embeddings"]):
            elements += embedding
        memory = self.memory
        owned = -(-self.parameters() // self.world_size)
        copies = owned * memory["element_bytes"] if memory["element_bytes"] < 4 else 0  # in the dtype of computation
        return (elements * (memory["element_bytes"] + memory["accumulator_bytes"])
                + owned * memory["owner_bytes_per_parameter"] + copies + self.link_buffer_bytes(scheme, stage)
                + (memory["logits_chunk_bytes"] if last else 0))

    def link_buffer_bytes(self, scheme, stage):
        """A buffer to send from and one to receive in on each level of links, for the largest round of pull or push. A TP rank
        moves a layer's elements a round; embedding and head travel with one. Longer rounds are cut into pieces."""
        tp, pp, _ = scheme
        if self.world_size == 1:
            return 0
        embedding, layer, head = self.largest_shards(tp)
        last = stage == pp - 1
        ends = [head] if last else []
        if stage == 0 or (last and self.model["tie_word_embeddings"]):
            ends.append(embedding)
        layers = self.layers_of(pp, stage)
        rounds = max(1, -(-layers // tp))
        moved = -(-layers * layer // rounds) + (sum(ends) if rounds == 1 else max(ends, default=0))
        pieces = max(1, -(-moved // LONGEST_PIECE))
        if pieces > 1:
            moved = -(-moved // pieces)
            moved += -(-moved // 64)
        widest = max(self.memory["element_bytes"], self.memory["accumulator_bytes"])
        levels = 1 if self.world_size <= self.gpus_per_node else 2
        return levels * 2 * moved * widest

    @functools.cache
    def free_bytes(self, scheme):
        fullest = max(self.stage_bytes(scheme, stage) for stage in range(scheme[1]))
        return self.memory["device_bytes"] - (fullest + fullest // 512 + SMALL_TENSORS)

    def saved_bytes_per_token(self, scheme):
        """Of the fullest stage, with one row of activations at its boundary."""
        tp, pp, _ = scheme
        entry = self.layers[tp]
        of_layer = entry["saved_bytes_per_token"] + (entry["deferred_bytes_per_token"] if pp > 1 else 0)
        boundary = -(-self.hidden * self.memory["element_bytes"] // tp)
        return self.layers_of(pp, 0) * of_layer + boundary

    def transient_bytes_per_token(self, scheme):
        """What is at work; where lanes may share sequences, with what a ring's backward adds to any other's."""
        tp, _, cp = scheme
        plain = self.memory["transient_bytes_by_tp"][str(tp)]  # the planner's own: it depends on what TP cuts
        ring = self.ring_bytes_per_token(tp) if cp > 1 and plain > 0 else 0
        # Four blocks of keys and values more where lanes lie on several nodes, several on each.
        two_levels = ring > 0 and cp * tp > self.group_ranks[0] >= 2 * tp
        return plain + ring + (4 * self.block_bytes(tp) if two_levels else 0)

    def block_bytes(self, tp):
        """Of a token's keys and values."""
        return 2 * -(-self.model["num_key_value_heads"] // tp) * self.model["head_dim"] * self.memory["element_bytes"]

    def ring_bytes_per_token(self, tp):
        """Queries' gradients, new queries, keys and values, two blocks of keys and values that pass by and three of
        gradients, where that is more than another half of the backward takes, once the MLP is done with."""
        hidden, head_dim, element = self.hidden, self.model["head_dim"], self.memory["element_bytes"]
        shard, feed_forward = -(-hidden // tp), -(-self.model["intermediate_size"] // tp)
        queries = -(-self.model["num_attention_heads"] // tp) * head_dim
        block = 2 * max(1, self.model["num_key_value_heads"] // tp) * head_dim
        gathered = hidden if tp > 1 else 0
        wide = max(4, element) // element
        mlp = max(2 * feed_forward, feed_forward + gathered + shard, feed_forward + 3 * shard)
        attention = max(queries, gathered + shard, 3 * shard) - 2 * feed_forward
        ring = 2 * queries + (5 + wide) * block - 2 * feed_forward
        if wide > 1:
            ring += block + wide * queries
        return element * max(0, ring - max(mlp, attention))

    def max_len(self, scheme):
        per_token = self.saved_bytes_per_token(scheme) + self.transient_bytes_per_token(scheme)
        return min(LONGEST, max(0, self.free_bytes(scheme) // per_token))

    def credit(self, scheme):
        transient = self.max_len(scheme) * self.transient_bytes_per_token(scheme)
        return min(LONGEST, max(0, (self.free_bytes(scheme) - transient) // self.saved_bytes_per_token(scheme)))

    # Times.

    @functools.cache
    def stage_times(self, scheme, stage):
        """Forward, gradient of the input and gradient of the weights on a whole stage."""
        tp, pp, _ = scheme
        entry = self.layers[tp]
        layers = self.layers_of(pp, stage)
        terms = [[(layers, quadratic(entry[key]))] for key in ("forward", "backward_input", "backward_weight")]
        if stage == 0:
            terms[0].append((1, quadratic(entry["embedding_forward"])))
            terms[1].append((1, quadratic(entry["embedding_backward"])))
        if stage == pp - 1:
            terms[0].append((1, quadratic(entry["head"])))
        return [total(sums) for sums in terms]

    def message_ns(self, size, level):
        link = self.links[level]
        return link["latency_ns"] + nearest(size * 10**9, link["bytes_per_s"])

    def transfer_ns(self, scheme, tokens, level):
        return self.message_ns(-(-tokens // scheme[0]) * self.hidden * self.memory["element_bytes"], level)

    def ring_exposed_ns(self, members, nodes, level, layers, size, attention):
        """What a ring of so many members waits for a block of so many bytes a layer, beside its attention (fixed
        point). Of members that lie several on a node blocks go round inside each, and once a round from node to node:
        beside all steps of the round."""
        inner, outer = (layers * self.message_ns(size, on) << FRACTION_BITS for on in (0, level))
        if nodes == 1 or nodes == members:
            exposed = (members - 1) * (inner if nodes == 1 else outer) - (attention - attention // members)
        else:
            own = attention // members
            held = (members // nodes - 1) * max(own, inner) + own
            exposed = (nodes - 1) * max(held, outer) + held - attention
        return nearest(max(0, exposed), 1 << FRACTION_BITS)

    def ring_ns(self, scheme, stage, nodes, level, work):
        """What a ring adds to (forward, gradient of the input, gradient of the weights) on a stage: blocks of keys and
        values, in the backward pass with their gradients."""
        tokens, squares = work
        layers = self.layers_of(scheme[1], stage)
        return (*(self.ring_exposed_ns(len(nodes), len(nodes) // together(nodes), level, layers,
                                       blocks * self.block_bytes(scheme[0]) * tokens, a * squares)
                  for blocks, (a, _, _) in zip((1, 2), self.stage_times(scheme, stage))), 0)

    # Heads exchanged between lanes.

    def heads(self, tp):
        """A TP rank's query and key heads."""
        return self.model["num_attention_heads"] // tp, max(1, self.model["num_key_value_heads"] // tp)

    def most_heads(self, tp, run):
        """The most query and key heads of a lane, where `run` lanes exchange them."""
        queries, keys = self.heads(tp)
        group = queries // keys
        parts = [(lane * queries // run, (lane + 1) * queries // run) for lane in range(run)]
        return (max(end - begin for begin, end in parts),
                max(-(-end // group) - begin // group for begin, end in parts))

    def exchange_ns(self, scheme, stage, nodes, level, run, work):
        """The same as ring_ns where runs of `run` lanes exchange heads, twice each way, and a ring goes round between
        the runs. `nodes`: the node of each lane, in order; `level`: on which they meet."""
        lanes, (tokens, squares) = len(nodes), work
        if run == 1:
            return self.ring_ns(scheme, stage, nodes, level, work)
        of_node = [nodes.count(node) for node in dict.fromkeys(nodes)]
        head = self.model["head_dim"] * self.memory["element_bytes"]
        queries, _ = self.heads(scheme[0])
        most_queries, most_keys = self.most_heads(scheme[0], run)
        layers = self.layers_of(scheme[1], stage)
        peer = 2 * (most_queries + most_keys) * head * tokens
        inside = run - 1 if math.gcd(*of_node) % run == 0 else min(min(of_node), run) - 1
        moved = layers * max(self.message_ns(count * peer, on) + self.links[on]["latency_ns"] if count else 0
                             for count, on in ((inside, 0), (run - 1 - inside, level)))
        forward, backward, weight = (times[0] for times in self.stage_times(scheme, stage))
        slowest = most_queries * run
        added = []
        for blocks, attention, all_attention in ((1, forward, forward), (2, backward, backward + weight)):
            waits = time_ns((all_attention * (slowest - queries) // queries, 0, 0), 0, squares)
            rings = 0
            if run < lanes:
                runs = lanes // run
                in_node = math.gcd(runs, max(1, together(nodes) // run))
                rings = self.ring_exposed_ns(runs, runs // in_node, level, layers,
                                             blocks * run * 2 * most_keys * head * tokens,
                                             attention * slowest // queries * squares)
            added.append(moved + waits + rings)
        return (*added, 0)

    def exchange_credit(self, scheme, run, tokens):
        """What those tokens take of a lane's credit."""
        if run == 1:
            return tokens
        tp, element = scheme[0], self.memory["element_bytes"]
        queries, keys = self.heads(tp)
        most_queries, most_keys = self.most_heads(tp, run)
        head_dim, statistic = self.model["head_dim"], max(4, element)
        wide, feed_forward = statistic // element, self.model["intermediate_size"] // tp
        q, block = queries * head_dim, 2 * keys * head_dim
        run_q, run_block = run * most_queries * head_dim, 2 * run * most_keys * head_dim
        saved = (2 * run_q + run_block - q - block) * element + (run * most_queries - queries) * statistic
        travels = 2 * (q + block) + run_q + run_block - (3 * feed_forward + run_q + q)
        back = run_block + (2 + (wide if wide > 1 else 0)) * (q + block)
        returns = max(0, max(2 * q + 2 * run_q, back) - 4 * feed_forward)
        ring = 2 * (run_q - q) + (5 + wide) * (run_block - block)
        if wide > 1:
            ring += run_block - block + wide * (run_q - q)
        at_work = max(0, travels, returns, ring) * element if self.memory["transient_bytes_per_token"] > 0 else 0
        ring_held = self.saved_bytes_per_token(scheme)
        held = ring_held + self.layers_of(scheme[1], 0) * saved + at_work
        return -(-tokens * held // ring_held)
