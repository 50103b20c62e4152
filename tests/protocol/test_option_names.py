from dataclasses import fields

from pagewire.engine.config import EngineConfig
from pagewire.frontend.config import FrontendConfig
from pagewire.protocol.option_fields import options_of
from pagewire.protocol.option_names import ENGINE_OPTIONS, FRONTEND_OPTIONS


def test_the_shared_list_names_every_option_of_the_engine():
    assert {field.name for field in fields(EngineConfig)} == ENGINE_OPTIONS


def test_the_shared_list_names_every_option_of_the_frontend():
    assert {field.name for field in fields(FrontendConfig)} == FRONTEND_OPTIONS


def test_no_flag_is_used_twice_in_either_program():
    for config in (EngineConfig, FrontendConfig):
        flags = [flag for option in options_of(config) for flag in (option.flag, *option.aliases, *option.off_aliases)]
        assert len(flags) == len(set(flags))


def test_an_option_of_both_programs_is_written_the_same_way():
    engine = {option.name: option for option in options_of(EngineConfig)}
    for option in options_of(FrontendConfig):
        if option.name in engine:
            assert option.kind.expected == engine[option.name].kind.expected
