"""A registry folder behind the HTTP API of the Hugging Face Hub."""
