"""The configs of the models that the GPU benchmarks train, as in config.json."""

# What makes any of them small enough for a CPU, to try the scripts.
TINY = dict(n_embd=32, n_layer=2, n_head=2, hidden_size=32, intermediate_size=64,
            num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, d_model=32, d_kv=16,
            d_ff=64, num_layers=2, num_heads=2, ffn_dim=64, word_embed_proj_dim=32)

GPT2 = dict(model_type="gpt2", vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12,
            n_head=12, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
LLAMA = dict(model_type="llama", vocab_size=128256, hidden_size=2048, intermediate_size=8192,
             num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
             max_position_embeddings=2048, rope_theta=500000.0, tie_word_embeddings=True)
QWEN = dict(model_type="qwen2", vocab_size=151936, hidden_size=896, intermediate_size=4864,
            num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
            max_position_embeddings=2048, rope_theta=1000000.0, tie_word_embeddings=True)
BERT = dict(model_type="bert", vocab_size=30522, hidden_size=768, num_hidden_layers=12,
            num_attention_heads=12, intermediate_size=3072, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0, num_labels=2)

QWEN3 = dict(model_type="qwen3", vocab_size=151936, hidden_size=1024, intermediate_size=3072,
             num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
             max_position_embeddings=4096, rope_theta=1000000.0, tie_word_embeddings=True)
MISTRAL = dict(model_type="mistral", vocab_size=32000, hidden_size=2048, intermediate_size=7168,
               num_hidden_layers=28, num_attention_heads=32, num_key_value_heads=8,
               max_position_embeddings=4096, sliding_window=1024)
SMALL_LLAMA = dict(LLAMA, vocab_size=32000, hidden_size=288, intermediate_size=768,
                   num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=6,
                   max_position_embeddings=256)
