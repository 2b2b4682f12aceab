"""Sluice's planner in other training programs: sluice.integrations.megatron, .hybrid_cp, .slime, .verl and .torch.

These programs fix their process groups at the start. Each data-parallel rank computes with one scheme for the whole
run, and the planner decides which sequences it gets and how they are packed (sluice.integrations.balancer). Importing
a module imports its program's libraries; this page, balancer, parts, hybrid_cp and slime need none.
"""
