"""Chat templates of our own in the styles that open models use, and conversations to render with
them.
"""

CHATML = """{%- if messages[0]['role'] != 'system' -%}
    {{ '<|im_start|>system\\nBe brief and kind.<|im_end|>\\n' }}
{%- endif -%}
{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\\n' }}{% if message['role'] == 'assistant' %}\
{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}\
{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

LLAMA3 = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "1 Jan 2026" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{#- The system text stands apart from the turns. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|header|>system<|/header|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Mode: tools\\n" }}
{%- endif %}
{{- "Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot|>" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or message.role == 'ipython' or 'tool_calls' in message) %}
        {{- '<|header|>' + message['role'] + '<|/header|>\\n\\n'+ message['content'] | trim + \
'<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One tool call at a time, please.") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|header|>assistant<|/header|>\\n\\n' -}}
        {{- '{"name": "' + call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|header|>ipython<|/header|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|header|>assistant<|/header|>\\n\\n' }}
{%- endif %}
"""

QWEN = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Functions\\n<functions>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</functions><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string and \
not(message.content.startswith('<reply>') and message.content.endswith('</reply>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = \
content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query and (loop.last or (not loop.last and \
reasoning_content)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + \
'\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<reply>\\n' }}
        {{- content }}
        {{- '\\n</reply>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is \
defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("Turns must alternate: user, assistant, user, ...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("A call id has 9 characters.") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token }}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[RESULTS] {"content": ' + content|string + ", " }}
        {{- '"id": "' + message.tool_call_id + '"}[/RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user, assistant and tool roles here, not " + message["role"]) }}
    {%- endif %}
{%- endfor %}
"""

GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}\
{% set first_prefix = messages[0]['content'] + '\\n\\n' %}{% set loop_messages = messages[1:] %}\
{% else %}{% set first_prefix = '' %}{% set loop_messages = messages %}{% endif %}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Roles must take turns user/assistant/user/assistant") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<turn>' + role + '
' + (first_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Content of an unknown kind") }}
    {%- endif -%}
    {{ '</turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<turn>model
'}}
{%- endif -%}
"""

PHI = """{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}\
{{'<|system|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'user' %}{{'<|user|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>
'}}{% generation %}{{ message['content'] + '<|end|>
'}}{% endgeneration %}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>
' }}{% else %}{{ eos_token }}{% endif %}"""

DEEPSEEK = """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}\
{% endif %}{% set ns = namespace(is_first=false, is_tool=false, in_output=false, system_prompt='', \
first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}\
{%- if ns.first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}\
{% set ns.first_sp = false %}{%- else %}\
{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}\
{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}\
{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}\
{{'<|User|>' + message['content']}}{%- endif %}\
{%- if message['role'] == 'assistant' and message['tool_calls'] is defined and \
message['tool_calls'] is not none %}{%- set ns.is_tool = false -%}\
{%- for tool in message['tool_calls'] %}{%- if not ns.is_first %}\
{{'<|Assistant|><|calls|>' + tool['type'] + '<|sep|>' + tool['function']['name'] + '\\n' + \
'```json' + '\\n' + tool['function']['arguments']|string + '\\n' + '```' + '<|/call|>'}}\
{%- set ns.is_first = true -%}{%- else %}\
{{'\\n' + tool['function']['name'] + tool['function']['arguments']|string}}{%- endif %}\
{%- endfor %}{{'<|/calls|>' + eos_token}}{%- endif %}\
{%- if message['role'] == 'assistant' and (message['tool_calls'] is not defined or \
message['tool_calls'] is none) %}{%- if ns.is_tool %}\
{{'<|/outputs|>' + message['content'] + eos_token}}{%- set ns.is_tool = false -%}{%- else %}\
{% set content = message['content'] %}{% if '</think>' in content %}\
{% set content = content.split('</think>')[-1] %}{% endif %}\
{{'<|Assistant|>' + content + eos_token}}{%- endif %}{%- endif %}\
{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if not ns.in_output %}\
{{'<|outputs|>' + message['content']}}{%- set ns.in_output = true %}{%- else %}\
{{'\\n<|output|>' + message['content']}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}\
{{'<|/outputs|>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<|Assistant|>'}}\
{% endif %}"""

COMMAND_R = """{{ bos_token }}
{%- macro document_turn(documents) -%}
{%- for doc in documents %}

Document: {{ loop.index0 }}
{% for key, value in doc.items() -%}
{{ key|title }}: {{ value }}
{% endfor %}
{%- endfor %}
{%- endmacro -%}
{%- macro json_to_python_type(spec) -%}
{%- set basic = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"} -%}
{%- if basic[spec.type] is defined -%}
    {{- basic[spec.type] -}}
{%- elif spec.type == "array" -%}
    {{- "List[" + json_to_python_type(spec['items']) + "]" -}}
{%- elif spec.type == "object" -%}
    {{- "Dict" -}}
{%- else -%}
    {{- "Any" -}}
{%- endif -%}
{%- endmacro -%}
{%- macro tool_text(tools) -%}
{%- for tool in tools -%}
{%- if loop.index0 != 0 %}

{% endif -%}
def {{ tool.function.name }}(
    {%- for name, fields in tool.function.parameters.properties.items() -%}
        {%- if loop.index0 != 0 %}, {% endif -%}
        {{- name }}: {{ json_to_python_type(fields) -}}
        {%- if name not in tool.function.parameters.required %} = None{% endif -%}
    {%- endfor -%}
) -> List[Dict]:
    \"\"\"{{ tool.function.description }}\"\"\"
{%- endfor -%}
{%- endmacro -%}
{%- for message in messages -%}
{%- if message.role == 'nonsense' %}{% break %}{% endif -%}
{%- if message.content is none %}{% continue %}{% endif -%}
<|START|><|{{ message.role|upper }}|>{{ message.content|trim }}<|END|>
{%- endfor -%}
{%- if documents -%}<|START|><|SYSTEM|><results>{{ document_turn(documents) }}</results><|END|>{%- \
endif -%}
{%- if tools -%}<|START|><|SYSTEM|>{{ tool_text(tools) }}<|END|>{%- endif -%}
{%- if add_generation_prompt -%}<|START|><|CHATBOT|>{%- endif %}
"""

ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

FALCON = """{% for message in messages %}{% if not loop.first %}{{ '\\n' }}{% endif %}\
{% if message['role'] == 'system' %}{{ 'System: ' }}{% else %}\
{{ message['role'] | capitalize + ': ' }}{% endif %}\
{{ message['content'].replace('\\r\\n', '\\n').replace('\\n\\n', '\\n') }}{% endfor %}\
{% if add_generation_prompt %}{{ '\\n' + 'Assistant:' }}{% endif %}"""

TEMPLATES = {
    "chatml": CHATML, "llama3": LLAMA3, "qwen": QWEN, "mistral": MISTRAL, "gemma": GEMMA,
    "phi": PHI, "deepseek": DEEPSEEK, "command_r": COMMAND_R, "zephyr": ZEPHYR, "falcon": FALCON
}

TOOLS = [
    {
        "type": "function", "function": {
            "name": "tide", "description": "Height of the tide \u2013 in m & <cm>", "parameters": {
                "type": "object", "properties": {
                    "place": {"type": "string", "description": "Where"},
                    "hours": {"type": "array",
                              "items": {"type": "integer"}}, "depth": {"type": "number"}
                }, "required": ["place"]
            }
        }
    },
    {
        "type": "function", "function": {
            "name": "ping", "description": "Says \"pong\"",
            "parameters": {"type": "object", "properties": {}, "required": []}
        }
    },
]
DOCUMENTS = [{"title": "Tides", "text": "High at noon."},
             {"title": "Boats", "text": "Low at six.", "year": 1907}]
CHATS = {
    "short": [{"role": "user", "content": "Hello there"}],
    "three": [{"role": "user", "content": " What is the tide? "},
              {"role": "assistant", "content": "It is\nhigh — 3.2 m 😀."},
              {"role": "user", "content": "And\r\n\r\nnow?"}],
    "system": [{"role": "system",
                "content": "You measure\n\nrivers."}, {"role": "user", "content": "How long?"},
               {"role": "assistant", "content": "<think>\nhm\n</think>\n\nVery long."},
               {"role": "user", "content": "Thanks"}, {"role": "assistant", "content": "Welcome"}],
    "calls": [{"role": "user", "content": "Tide in Łódź?"}, {
        "role": "assistant", "content": None, "tool_calls": [{
            "id": "abcdefghi", "type": "function", "function": {
                "name": "tide", "arguments": {
                    "place": "Łódź", "hours": [1, 2], "depth": 1.0, "deep": None, "ok": True
                }
            }
        }]
    }, {"role": "tool", "tool_call_id": "abcdefghi", "content": "{\"tide\": 0}"},
              {"role": "assistant", "content": "There is none."}],
    "reasons": [{"role": "user", "content": "Why?"},
                {"role": "assistant", "content": "Because.", "reasoning": "first this\nthen that"}],
    "wrong": [{"role": "assistant", "content": "I start."},
              {"role": "assistant", "content": "And go on."}],
    "blocks": [{"role": "user",
                "content": [{"type": "image"}, {"type": "text", "text": " look "}]}],
}
OPTIONS = [{}, {"add_generation_prompt": True}, {"tools": TOOLS, "add_generation_prompt": True},
           {"documents": DOCUMENTS}, {
               "variables": {"enable_thinking": False, "date_string": "5 May 2025"},
               "add_generation_prompt": True
           }, {"mask": True}]

# Expressions in which Jinja engines tend to differ; `v` is the value below.
VALUE = {
    "none": None, "yes": True, "no": False, "one": 1, "half": 0.5, "big": 1e16, "tiny": 1e-7,
    "whole": 2.0, "text": "a 'b' \"c\" <&> é", "list": [1, "x", None, 2.5, True],
    "map": {"b": 1, "a": [1, {"c": None}]}, "names": ["Zed", "amy", "Bob"],
    "rows": [{"n": "x", "k": 2}, {"n": "y", "k": 1},
             {"n": "x",
              "k": 3}], "empty": [], "multi": "one\ntwo\n\nthree", "spaces": "\u00a0 pad \x1f\n"
}
EXPRESSIONS = [
    "{{ v.none }}",
    "{{ v.yes }}|{{ v.no }}",
    "{{ v.half }} {{ v.big }} {{ v.tiny }} {{ v.whole }}",
    "{{ v.list }}",
    "{{ v.map }}",
    "{{ v.text }}",
    "{{ v.missing }}",
    "{{ v.missing is defined }}",
    "{{ v.list|tojson }}",
    "{{ v.map|tojson }}",
    "{{ v.map|tojson(indent=2) }}",
    "{{ v.list|tojson(indent=1) }}",
    "{{ v.empty|tojson(indent=2) }}",
    "{{ v.text|tojson }}",
    "{{ v.text|tojson(ensure_ascii=True) }}",
    "{{ v.map|tojson(sort_keys=True) }}",
    "{{ v.map|tojson(separators=(',', ':')) }}",
    "{{ v.text|length }}",
    "{{ v.list|length }}",
    "{{ v.names|join(', ') }}",
    "{{ v.list|join('-') }}",
    "{{ v.names|sort|join(' ') }}",
    "{{ v.rows|map(attribute='n')|list }}",
    "{{ v.rows|selectattr('n', 'equalto', 'x')|list|length }}",
    "{{ v.rows|rejectattr('k', 'gt', 1)|map(attribute='k')|list }}",
    "{{ (v.rows|selectattr('k', 'eq', 2)|first).n }}",
    "{% for k, x in v.map.items() %}{{ k }}:{{ x }},{% endfor %}",
    "{% for k, x in v.map|dictsort %}{{ k }}={{ x }};{% endfor %}",
    "{{ v.map.keys()|list }}",
    "{{ v.map.values()|list }}",
    "{{ v.map.get('zz', 'dflt') }}",
    "{{ v.map.get('zz') }}",
    "{{ v.multi.splitlines() }}",
    "{{ v.multi.split('\\n') }}",
    "{{ v.text.split() }}",
    "{{ v.text.upper() }} {{ v.text|title }} {{ v.text|capitalize }}",
    "{{ v.spaces|trim }}|{{ v.spaces.strip() }}|",
    "{{ 'xxabxx'.strip('x') }} {{ 'xxab'.lstrip('x') }} {{ 'abxx'.rstrip('x') }}",
    "{{ 'prefix-body'.removeprefix('prefix-') }} {{ 'a.b.c'.rsplit('.', 1) }} {{ "
    "'a.b'.partition('.')[2] }} {{ 'a.b.c'.rpartition('.')|join('|') }}",
    "{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }}",
    "{{ 'abc'[::-1] }} {{ 'abc'[1:] }} {{ 'abc'[-1] }}",
    "{{ v.names[1:] }} {{ v.names[-1] }} {{ v.names[::-1] }}",
    "{{ 'b' in v.map }} {{ 'x' in v.list }} {{ 'b' in v.text }}",
    "{{ 7 // 2 }} {{ 7 % 3 }} {{ 7 / 2 }} {{ 2 ** 5 }} {{ -7 // 2 }}",
    "{{ '=' * 5 }}",
    "{{ 'a' ~ 1 ~ 2.5 }}",
    "{{ v.one + 1 }} {{ v.half * 4 }}",
    "{{ 'yes' if v.yes else 'no' }}{{ 'x' if v.no }}",
    "{{ v.none or 'other' }} {{ v.empty or 'none' }} {{ v.one and 'both' }}",
    "{{ v.none|default('d') }} {{ v.none|default('d', true) }} {{ v.missing|default('d') }}",
    "{{ v.one is number }} {{ v.yes is number }} {{ v.text is string }} {{ v.map is mapping }} {{ "
    "v.list is iterable }} {{ v.text is iterable }} {{ v.text is sequence }} {{ v.map is sequence "
    "}} {{ v.yes is boolean }} {{ v.yes is true }} {{ v.no is false }} {{ v.one is integer }} {{ "
    "v.half is float }} {{ 3 is odd }} {{ v.none is none }}",
    "{{ v.one == 1.0 }} {{ v.one != '1' }} {{ 1 < 2 <= 2 }}",
    "{% set x = 1 %}{% for i in range(3) %}{% set x = i %}{% endfor %}{{ x }}",
    "{% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor %}{{ "
    "ns.n }}",
    "{% for i in v.names %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ "
    "loop.length }}{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
    "{% for i in range(10) if i is even %}{% if i == 6 %}{% break %}{% endif %}{% if i == 2 %}{% "
    "continue %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in v.empty %}x{% else %}nothing{% endfor %}",
    "{% macro m(a, b='q') %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m('z', b=2) }}",
    "{% set block %}  text {{ v.one }}\n{% endset %}[{{ block }}]",
    "{% filter upper %}shout {{ v.one }}{% endfilter %}",
    "{% macro wrap() %}<{{ caller() }}>{% endmacro %}{% call wrap() %}in{% endcall %}",
    "{% if v.one %}\n    a\n  {%- if v.no %}\n    b\n  {% endif %}\n  c\n{% endif %}\nend\n\n",
    "  {% if true %}  x  {% endif %}  \n  {# note #}  \n y",
    "{{ v.multi|indent(2) }}",
    "{{ v.multi|indent(2, true) }}",
    "{{ v.names|first }} {{ v.names|last }} {{ v.list|reverse|list }}",
    "{{ v.rows|groupby('n')|length }}",
    "{{ [3, 1, 2]|sort }} {{ [3, 1]|max }} {{ [3, 1]|min }} {{ [1, 2]|sum }}",
    "{{ v.names|unique|list }}",
    "{{ '3'|int + 1 }} {{ '2.5'|float }} {{ 2.567|round(1) }} {{ 2.4|round|int }} {{ -3|abs }}",
    "{{ v.text|replace('a', 'A') }} {{ v.text|lower }} {{ v.list|string }}",
    "{{ dict(a=1, b='x') }}",
    "{{ [1, 2] + [3] }} {{ (1, 2)|list }}",
    "{{ v.text|e }}|{{ v.text|safe }}",
    "{{ 'a,b'.split(',') | map('upper') | join('+') }}",
    "{{ v.rows|map(attribute='k')|sum }}",
    "{{ {'a': 1}['a'] }} {{ {'a': {'b': 2}}.a.b }}",
    "{{ '%s and %d' | format('x', 3) }}",
    "{{ 'x'.join(['1', '2']) }} {{ 'ab'.isalpha() }} {{ '12'.isdigit() }} {{ 'aXbX'.count('X') }} "
    "{{ 'abc'.find('c') }} {{ \"they're on-line x2y\".title() }} {{ \"they're on-line (ok)\"|title "
    "}} {{ 'ABC'.lower() }}",
    "{{ v.names|length > 2 }}",
    "{% raw %}{{ not }}{% endraw %}",
    "{{ \"quote \\\" and \\n newline\" }}",
    "{{ v['map']['a'][1].c is none }}",
    "{% set a, b = 1, 2 %}{{ a + b }}",
    "{% with z = 3 %}{{ z }}{% endwith %}",
    "{{ range(3)|list }} {{ range(1, 7, 2)|list }}",
    "{{ true and not false }}",
    "{{ v.list[1:3] }} {{ v.list[:-1] }}",
    "{{ v.rows|tojson|length }}",
    "{{ (v.names|list)[0] }}",
    "{{ '' if v.text else 'x' }}|",
    "{{ v.map | length }} {{ v.map | list }}",
    "{{- ' a ' -}}  b  {{- 'c' }}",
    "{{ 'Straße'|upper }} {{ 'ÉCOLE'|lower }}",
]
