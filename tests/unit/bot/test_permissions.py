"""Which rules are in force for a configuration."""

from __future__ import annotations

from agent.demo.rules import DEMO_RULES
from agent.models.settings import ModelSettings
from agent.permissions.defaults import OUTSIDE_RULES
from agent.permissions.rules import RuleText
from agent.sections import PermissionConfig
from bot.config.schema import Config, SandboxConfig
from bot.permissions import rules_in_force
from sandbox.network.rules import NetworkRules

MODELS = (ModelSettings("main"),)
ONLINE = SandboxConfig(network=NetworkRules(mode="on"))


def test_without_a_network_nothing_asks() -> None:
    assert rules_in_force(Config(models=MODELS)) == ()


def test_the_built_in_rules_hold_where_the_sandbox_has_a_network() -> None:
    permissions = PermissionConfig(ask=(RuleText("bash(make deploy)"),))
    rules = rules_in_force(Config(models=MODELS, sandbox=ONLINE, permissions=permissions))
    assert [str(rule) for rule in rules[:2]] == ["bash(make deploy)", "bash(git push *)"]
    assert tuple(rules[1:]) == OUTSIDE_RULES


def test_the_demo_has_a_rule_that_asks() -> None:
    assert rules_in_force(Config()) == DEMO_RULES
